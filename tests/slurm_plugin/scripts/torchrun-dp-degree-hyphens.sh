#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:8
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py --model Qwen/Qwen2.5-0.5B --seq-len 2048 \
    --micro-batch-size 2 --global-batch-size 256 --dp-degree=8 --tp-degree=1
