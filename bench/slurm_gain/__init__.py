"""What rlalloc gains on a real Slurm site, beside the simulator's prediction: docs/results/real-sites.md."""
