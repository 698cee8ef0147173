#!/bin/bash
WORLD_SIZE=$((SLURM_NNODES * SLURM_GPUS_ON_NODE))
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --world-size $WORLD_SIZE
