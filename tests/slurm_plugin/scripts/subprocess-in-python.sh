#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32
python - <<'PY'
import subprocess
subprocess.run(["torchrun", "--nproc_per_node", "4", "train.py", "--global_batch_size", "64"], check=True)
PY
accelerate launch --num_processes $SLURM_GPUS_ON_NODE other.py --global_batch_size 64 --micro_batch_size 1
