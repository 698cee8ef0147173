#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
srun accelerate launch --num_processes $((SLURM_NNODES * SLURM_GPUS_ON_NODE)) --num_machines $SLURM_NNODES --machine_rank $SLURM_PROCID train.py
