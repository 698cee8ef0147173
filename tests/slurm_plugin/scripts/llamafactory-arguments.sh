#!/bin/bash
#SBATCH -J llama3-lora
#SBATCH -N 1
#SBATCH --gres=gpu:4
#SBATCH -c 32
#SBATCH --mem=240G

export NPROC_PER_NODE=$SLURM_GPUS_ON_NODE
export DISABLE_VERSION_CHECK=1

FORCE_TORCHRUN=1 llamafactory-cli train \
    --stage sft --do_train True \
    --model_name_or_path meta-llama/Meta-Llama-3-8B-Instruct \
    --finetuning_type lora --lora_target all \
    --dataset alpaca_en_demo --template llama3 \
    --cutoff_len 2048 --preprocessing_num_workers 16 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \
    --learning_rate 1e-4 --num_train_epochs 3.0 --bf16 True \
    --output_dir saves/llama3-8b/lora/sft
