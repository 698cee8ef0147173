"""``python -m slurm_gain``."""

import sys

from slurm_gain.app import main

sys.exit(main())
