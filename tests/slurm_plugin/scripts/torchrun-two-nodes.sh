#!/bin/bash
srun torchrun --nnodes=2 --nproc-per-node=$SLURM_GPUS_ON_NODE train.py
