#!/bin/bash
N=$SLURM_GPUS_ON_NODE
shopt -s lastpipe
cat slots.txt | read N
torchrun --nproc-per-node=$N train.py --global-batch-size 64
