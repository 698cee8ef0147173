#!/bin/bash
N=$SLURM_GPUS_ON_NODE
mapfile -t -n 1 N < counts.txt
torchrun --standalone --nproc-per-node=$N train.py --global-batch-size 64
