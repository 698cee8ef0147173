"""The demo: a Slurm site on this machine, users who submit LLM jobs, and rlalloc at work on them."""
