#!/bin/bash
srun -n1 torchrun --nproc_per_node=gpu train.py
