#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=200G
nproc=$SLURM_GPUS_ON_NODE
NPROC_PER_NODE=$nproc swift sft \
    --model Qwen/Qwen2.5-7B-Instruct --train_type lora --torch_dtype bfloat16 \
    --dataset 'swift/self-cognition#500' --per_device_train_batch_size 1 \
    --gradient_accumulation_steps $(expr 16 / $nproc) --max_length 2048 --output_dir output
