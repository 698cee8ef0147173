#!/bin/bash
N=$SLURM_GPUS_ON_NODE
declare -n ref=N
ref=4
torchrun --standalone --nproc-per-node=$N train.py --global-batch-size 64
