#!/bin/bash
mpirun --bind-to none -np 4 python preprocess.py
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64
