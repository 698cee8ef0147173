#!/bin/bash
srun --cpus-per-task=16 torchrun --nproc_per_node=gpu train.py
