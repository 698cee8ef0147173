#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=240G
srun --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --mem="$SLURM_MEM_PER_NODE" \
    torchrun --standalone --nproc-per-node=gpu train.py \
    --model gpt2-medium --seq-length 1024 --micro-batch-size 8 --global-batch-size 256
