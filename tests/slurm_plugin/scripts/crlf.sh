#!/bin/bash
#SBATCH --gres=gpu:4
torchrun \
  --nproc_per_node=gpu \
  train.py
