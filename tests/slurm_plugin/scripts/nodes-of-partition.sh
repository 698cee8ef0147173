#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
NODES=$(scontrol show partition gpu | grep -o TotalNodes)
srun torchrun --nnodes=$NODES --nproc_per_node=$SLURM_GPUS_ON_NODE \
    pretrain.py --micro_batch_size 4 --global_batch_size 256
