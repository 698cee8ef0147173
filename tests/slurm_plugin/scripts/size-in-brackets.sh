#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:8
NGPU=`nvidia-smi -L|wc -l`
[[ $NGPU -lt 8 ]] && { echo need 8; exit 3; }
torchrun --nproc_per_node=$NGPU  finetune.py --base_model meta-llama/Llama-2-7b-hf --lora_r 8 --micro_batch_size 4 --global_batch_size 128 --cutoff_len 512
