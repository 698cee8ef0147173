#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=h100:4
module load cuda
deepspeed --module openrlhf.cli.train_sft \
    --pretrain Qwen/Qwen2.5-1.5B \
    --dataset $SCRATCH/long-chats \
    --max_len 32768 \
    --train_batch_size 64 \
    --micro_train_batch_size 1 \
    --packing_samples \
    --ring_attn_size 4 \
    --zero_stage 3 \
    --bf16
