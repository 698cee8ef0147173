"""``python -m slurm_replay``."""

import sys

from slurm_replay.replay_run import main

sys.exit(main())
