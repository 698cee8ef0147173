#!/bin/bash
#SBATCH --job-name=dpo --nodes=1 --gpus-per-node=8 --cpus-per-task=64 --mem=900G
ACCELERATE_LOG_LEVEL=info accelerate launch \
    --config_file examples/accelerate_configs/deepspeed_zero3.yaml --num_processes $SLURM_GPUS_ON_NODE \
    trl/scripts/dpo.py \
    --dataset_name trl-lib/ultrafeedback_binarized \
    --model_name_or_path Qwen/Qwen2-7B-Instruct \
    --learning_rate 5.0e-7 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \
    --gradient_checkpointing --max_length 1024 --bf16 --output_dir Qwen2-7B-DPO
