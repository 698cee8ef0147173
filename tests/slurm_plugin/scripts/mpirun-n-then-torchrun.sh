#!/bin/bash
mpirun -n 4 python preprocess.py
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64
