#!/bin/bash
#SBATCH --job-name=litgpt
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1
#SBATCH --cpus-per-task=32 --mem=200G --time=06:00:00

source ~/envs/litgpt/bin/activate
litgpt finetune_lora meta-llama/Meta-Llama-3.1-8B \
  --data JSON --data.json_path data/alpaca.json \
  --devices auto --precision bf16-true \
  --train.global_batch_size 64 --train.micro_batch_size 2 --train.max_seq_length 2048 \
  --lora_r 16 --out_dir $SCRATCH/litgpt-lora
