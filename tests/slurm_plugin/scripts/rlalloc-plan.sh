#!/bin/bash
#SBATCH --job-name=pretrain --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=16 --mem=64G
torchrun --standalone --nproc-per-node="$SLURM_GPUS_ON_NODE" train.py --model gpt2-medium --seq-length 1024 \
    --global-batch-size 128 --micro-batch-size 4 \
    --tensor-parallel-size "${RLALLOC_TP:-1}" --pipeline-parallel-size "${RLALLOC_PP:-1}"
