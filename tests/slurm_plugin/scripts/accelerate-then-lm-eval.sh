#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:8
accelerate launch --num_processes $SLURM_GPUS_ON_NODE train.py --model_name_or_path Qwen/Qwen2.5-0.5B \
    --per_device_train_batch_size 2 --max_seq_length 2048 --bf16
lm_eval --tasks mmlu --model_args pretrained=out
