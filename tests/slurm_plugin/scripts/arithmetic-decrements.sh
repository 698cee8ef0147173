#!/bin/bash
N=$SLURM_GPUS_ON_NODE
WORKERS=$(( N-- * 4 ))
torchrun --standalone --nproc-per-node=$N train.py --global-batch-size 64 --num-workers $WORKERS
