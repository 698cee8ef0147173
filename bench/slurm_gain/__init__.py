"""What rlalloc gains on a real Slurm site here, beside what the simulator says of the same streams: docs/gain.md."""
