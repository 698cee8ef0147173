"""A Slurm site simulated by compiled code (``engine``), and what runs streams and policies on it."""
