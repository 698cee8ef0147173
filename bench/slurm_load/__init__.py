"""What rlallocd costs a slurmctld with a long queue, and how long jobs wait for it. See docs/benchmarks.md."""
