"""``python -m slurm_replay``."""

import sys

from slurm_replay.app import main

sys.exit(main())
