#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=300G --time=12:00:00
export $(grep -v '^#' job.env | xargs)
torchrun --standalone --nproc_per_node=gpu train.py --model_name_or_path meta-llama/Llama-3.2-1B \
    --max_seq_length 2048 --bf16 --global-batch-size 256 --micro-batch-size 4
