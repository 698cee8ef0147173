#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=300G --time=12:00:00
while IFS='=' read -r key value; do
    [ -n "$key" ] && export "$key=$value"
done < cluster.env
torchrun --standalone --nproc_per_node=$SLURM_GPUS_ON_NODE train.py --model_name_or_path meta-llama/Llama-3.2-1B \
    --max_seq_length 2048 --bf16 --global-batch-size 256 --micro-batch-size 4
