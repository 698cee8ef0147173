#!/bin/bash
#SBATCH --gres=gpu:8 -c 96
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE pretrain_gpt.py --ds-sequence-parallel-size 8 --num-layers 12 --hidden-size 768 --num-attention-heads 16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 32
