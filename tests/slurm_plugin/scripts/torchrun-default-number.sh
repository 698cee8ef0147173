#!/bin/bash
#SBATCH -N1 --gpus-per-node=8 -c 64
NUM_GPUS=${NUM_GPUS:-8}
torchrun --nproc_per_node=$NUM_GPUS train.py --global-batch-size 512 --micro-batch-size 8
