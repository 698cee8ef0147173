"""``python -m slurm_testbed``."""

from .cli import main

if __name__ == "__main__":
    main()
