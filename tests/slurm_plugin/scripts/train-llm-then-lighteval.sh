#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:4
python train_llm.py --devices $SLURM_GPUS_ON_NODE --model_name_or_path Qwen/Qwen2.5-0.5B \
    --per_device_train_batch_size 8 --max_seq_length 2048 --bf16
lighteval accelerate "pretrained=out" "leaderboard|mmlu|0"
