#!/bin/bash
declare -i SLURM_GPUS_ON_NODE
SLURM_GPUS_ON_NODE+=-1
torchrun --standalone --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64
