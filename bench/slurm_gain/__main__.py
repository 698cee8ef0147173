"""``python -m slurm_gain``."""

import sys

from slurm_gain.gain_run import main

sys.exit(main())
