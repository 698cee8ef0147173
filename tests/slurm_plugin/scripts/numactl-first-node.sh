#!/bin/bash
#SBATCH --gres=gpu:4 --cpus-per-task=32 --mem=240G
numactl -N0 -m0 torchrun --standalone --nproc-per-node=gpu train.py \
   --model gpt2-medium --seq-length 1024 --micro-batch-size 8 --global-batch-size 256
