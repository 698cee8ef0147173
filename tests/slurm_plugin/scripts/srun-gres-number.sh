#!/bin/bash
srun --gres=gpu:8 torchrun --nproc_per_node=gpu train.py
