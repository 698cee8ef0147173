#!/bin/bash
#SBATCH --gres=gpu:4 --ntasks-per-node=1 --cpus-per-task=64 --mem=480G
# since Slurm 22.05, srun does not read --cpus-per-task
export SRUN_CPUS_PER_TASK=64
srun torchrun --standalone --nproc-per-node=gpu train.py \
   --model gpt2-medium --seq-length 1024 --micro-batch-size 8 --global-batch-size 256
