#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --ntasks-per-node=1 --cpus-per-task=96
TP=${1:-8}
torchrun --nproc-per-node=gpu pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
    --micro-batch-size 1 --global-batch-size 512 --tensor-model-parallel-size $TP
