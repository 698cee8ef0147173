#!/bin/bash
N=$SLURM_GPUS_ON_NODE
printf -v N %d "$(grep -c gpu inventory.txt)"
torchrun --standalone --nproc-per-node=$N train.py --global-batch-size 64
