"""``python -m slurm_load [--quick]``."""

import sys

from slurm_load.app import main

sys.exit(main())
