#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
export COUNT_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=$COUNT_NODE --nproc_per_node=$SLURM_GPUS_ON_NODE --rdzv_backend=c10d \
    --rdzv_endpoint=$MASTER_ADDR:29501 pretrain.py
