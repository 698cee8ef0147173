#!/bin/bash
#SBATCH --gres=gpu:a100:8 -c 96
GPUS_PER_NODE=${SLURM_GPUS_ON_NODE}
torchrun --nproc-per-node=$GPUS_PER_NODE pretrain.py --model tinyllama-1.1b --tp_degree 8 --seq-len 1024 --micro-batch-size 2 --global-batch-size 256
