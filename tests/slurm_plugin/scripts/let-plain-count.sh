#!/bin/bash
N=$SLURM_GPUS_ON_NODE
let evals=1,N-=1
torchrun --nproc-per-node=$N train.py --global-batch-size 64
