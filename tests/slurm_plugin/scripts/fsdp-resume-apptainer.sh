#!/bin/bash
#SBATCH --job-name=resume --nodes=1 --gpus-per-node=a100:8 --cpus-per-task=64 --mem=900G --requeue
apptainer exec --nv --bind $SCRATCH pytorch-24.07.sif \
    torchrun --standalone --nproc_per_node=gpu train_fsdp.py --sharding-strategy FULL_SHARD \
    --global-batch-size 512 --micro-batch-size 4 --resume $SCRATCH/ckpt/last
