#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=h100:8
#SBATCH --cpus-per-task=96
# one GPU generates, seven train
CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model Qwen/Qwen2.5-7B-Instruct &
CUDA_VISIBLE_DEVICES=1,2,3,4,5,6,7 accelerate launch --num_processes $((SLURM_GPUS_ON_NODE - 1)) \
    grpo.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct --use_vllm
