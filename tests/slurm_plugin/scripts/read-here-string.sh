#!/bin/bash
N=$SLURM_GPUS_ON_NODE
read -r N <<< "$(cut -d: -f2 slots.txt)"
torchrun --nproc-per-node=$N train.py --global-batch-size 64
