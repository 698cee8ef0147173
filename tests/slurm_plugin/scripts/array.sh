#!/bin/bash
#SBATCH --array=0-9%2 --gres=gpu:2
LRS=(1e-3 5e-4 1e-4)
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --lr ${LRS[$SLURM_ARRAY_TASK_ID]}
