#!/bin/bash
mpirun -npernode 4 -x NCCL_DEBUG=INFO python embed.py
torchrun --standalone --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64
