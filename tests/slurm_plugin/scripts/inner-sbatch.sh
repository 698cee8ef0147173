#!/bin/bash
torchrun --nproc_per_node=gpu train.py
sbatch --gres=gpu:2 eval.sbatch
