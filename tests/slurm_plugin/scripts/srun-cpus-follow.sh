#!/bin/bash
srun -c $SLURM_CPUS_PER_TASK --mem=0 torchrun --nproc_per_node=gpu train.py
