#!/bin/bash
module load intel-mpi
mpiexec.hydra -n 4 python embed.py
torchrun --standalone --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64
