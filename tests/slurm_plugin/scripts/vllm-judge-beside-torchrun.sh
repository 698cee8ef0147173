#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:4
vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size $SLURM_GPUS_ON_NODE --max-model-len 8192 &
torchrun --nproc_per_node $SLURM_GPUS_ON_NODE train.py --model_name_or_path Qwen/Qwen2.5-0.5B \
    --per_device_train_batch_size 1 --max_seq_length 2048 --bf16
