#!/bin/bash
N=$SLURM_GPUS_ON_NODE
let "N-=1"   # one GPU is for evaluation
torchrun --nproc-per-node=$N train.py --global-batch-size 64
