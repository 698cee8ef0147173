"""What rlallocd costs a slurmctld with a long queue, and how long jobs wait for it: docs/results/slurm-load.md."""
