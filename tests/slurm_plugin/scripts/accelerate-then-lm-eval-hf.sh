#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:4
accelerate launch --num_processes $SLURM_GPUS_ON_NODE train.py --model_name_or_path Qwen/Qwen2.5-0.5B \
    --per_device_train_batch_size 2 --max_seq_length 2048 --bf16
accelerate launch -m lm_eval --model hf --model_args pretrained=out --tasks mmlu --batch_size 8
