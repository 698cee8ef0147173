#!/bin/bash
#SBATCH --job-name=pythia
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100:8
#SBATCH --cpus-per-task=64
#SBATCH --mem=500G

export UV_CACHE_DIR=$SCRATCH/uv UV_FROZEN=1
cd ~/pythia && uv sync

uv run torchrun --standalone --nproc-per-node=gpu train.py \
    --model EleutherAI/pythia-1.4b --seq-length 2048 \
    --global-batch-size 1024 --micro-batch-size 4 --bf16 --lr 2e-4
