#!/bin/bash
#SBATCH --job-name=mpt-7b --nodes=1 --gpus-per-node=8 --cpus-per-task=96 --mem=0
cd llm-foundry/scripts
composer train/train.py train/yamls/pretrain/mpt-7b.yaml \
  variables.data_local=/data/c4 train_loader.dataset.split=train \
  max_duration=4800ba eval_interval=0 save_folder=mpt-7b global_train_batch_size=1024
