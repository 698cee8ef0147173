"""``python -m slurm_load [--quick]``."""

import sys

from slurm_load.load_run import main

sys.exit(main())
