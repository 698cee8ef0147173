#!/bin/bash
#SBATCH -N 1 --gpus-per-node=4 -c 48 --mem=0
eval "$(pixi shell-hook -e cuda)"
pixi run -e cuda accelerate launch --num_machines 1 --num_processes "$SLURM_GPUS_ON_NODE" src/train.py \
    --per_device_train_batch_size 8 --learning_rate 2e-5
