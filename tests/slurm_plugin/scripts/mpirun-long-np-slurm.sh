#!/bin/bash
module load openmpi/4.1
mpirun --np $SLURM_NTASKS --bind-to none -x NCCL_DEBUG python train_gpt.py
