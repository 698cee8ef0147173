#!/bin/bash
N=${SLURM_GPUS_ON_NODE}
read HOSTNAME_OF_MASTER N < slots.txt
torchrun --nproc-per-node=${N} train.py --global-batch-size 64
