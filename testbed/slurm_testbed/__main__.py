"""``python -m slurm_testbed``."""

from .testbed_commands import main

if __name__ == "__main__":
    main()
