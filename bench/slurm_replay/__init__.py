"""A workload of jobs on a real Slurm site here, and what became of it: the real half of docs/validation.md."""
