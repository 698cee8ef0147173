#!/bin/bash
#SBATCH --gpus-per-node=4 --cpus-per-task=24
#SBATCH --time 2-0
source ~/venvs/nano/bin/activate
N=$(nvidia-smi --list-gpus | wc -l)
torchrun --standalone --nproc_per_node=$N train.py config/train_gpt2.py --batch_size=12 --gradient_accumulation_steps=40 --block_size=1024
