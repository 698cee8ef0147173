#!/bin/bash
N=$SLURM_GPUS_ON_NODE
declare -i N-=1
torchrun --standalone --nproc-per-node=$N train.py --global-batch-size 64
