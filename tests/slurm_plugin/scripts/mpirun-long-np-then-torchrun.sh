#!/bin/bash
mpirun --np 4 python tokenize_shards.py
torchrun --standalone --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64
