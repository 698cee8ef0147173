#!/bin/bash
#SBATCH --gres=gpu:a100:8 --ntasks=1 -c 64
cat > t.py <<'PY'
import os
assert int(os.environ["WORLD_SIZE"]) == 8, "we tuned this for 8"
from mytrainer import main
main()
PY
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE t.py --model gpt2 --seq-length 512 --global-batch-size 128 --micro-batch-size 2
