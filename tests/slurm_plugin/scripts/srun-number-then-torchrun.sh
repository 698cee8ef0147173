#!/bin/bash
export MASTER_ADDR=$(hostname) MASTER_PORT=29500
srun --ntasks-per-node=8 python train.py
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE finetune.py
