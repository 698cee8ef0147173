"""rlallocd: the daemon on the Slurm controller that intercepts, decides, applies and keeps the outcomes."""
