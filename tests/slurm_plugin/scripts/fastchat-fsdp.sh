#!/bin/bash
#SBATCH --gres=gpu:4
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE --master_port=20001 fastchat/train/train_mem.py --model_name_or_path lmsys/vicuna-7b-v1.5 --bf16 True --per_device_train_batch_size 2 --gradient_accumulation_steps 16 --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer
