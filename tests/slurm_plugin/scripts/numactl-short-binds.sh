#!/bin/bash
#SBATCH --gres=gpu:4 --cpus-per-task=64 --mem=480G
numactl -l -C 0-63 torchrun --standalone --nproc-per-node=gpu train.py \
   --model gpt2-medium --seq-length 1024 --micro-batch-size 8 --global-batch-size 256
