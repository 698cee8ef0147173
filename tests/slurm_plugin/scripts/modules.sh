#!/bin/bash
module purge; module load cuda/12.4 nccl
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
torchrun --nproc_per_node=gpu train.py
