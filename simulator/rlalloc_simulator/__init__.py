"""A Slurm site simulated by compiled code (``engine``), and what runs workloads and policies on it."""
