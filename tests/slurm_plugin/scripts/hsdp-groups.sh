#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=h100:8 --cpus-per-task=96
torchrun --nproc-per-node=auto train_fsdp.py --model meta-llama/Llama-2-13b-hf --global-batch-size 256 \
    --micro-batch-size 1 --sharding_group_size 4 --replica_group_size 2 --sp_size 2
