#!/bin/bash
#SBATCH --job-name=sd-lora
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --mem=128G

export MODEL_NAME="runwayml/stable-diffusion-v1-5"
export OUTPUT_DIR="/scratch/$USER/sd-lora"

accelerate launch --mixed_precision="bf16" --multi_gpu --num_processes=$SLURM_GPUS_ON_NODE \
  train_text_to_image_lora.py \
  --pretrained_model_name_or_path=$MODEL_NAME \
  --dataset_name="lambdalabs/naruto-blip-captions" \
  --dataloader_num_workers=8 \
  --resolution=512 --center_crop --random_flip \
  --train_batch_size=16 \
  --gradient_accumulation_steps=4 \
  --max_train_steps=15000 --learning_rate=1e-04 --output_dir=$OUTPUT_DIR
