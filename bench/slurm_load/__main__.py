"""``python -m slurm_load [--quick] [--burst-alone JOBS [--waiting JOBS [--one-user]] [--bare]]``."""

import sys

from slurm_load.load_run import main

sys.exit(main())
