"""A workload on a real Slurm site here, and what became of it: the real half of docs/results/validation.md."""
