#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=8
HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun torchrun \
    --nnodes=$SLURM_NNODES \
    --nproc-per-node=$SLURM_GPUS_ON_NODE \
    --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500 \
    train.py --config configs/7b.yaml
