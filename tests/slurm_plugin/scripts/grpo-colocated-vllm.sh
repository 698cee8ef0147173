#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=400G --time=24:00:00
NGPU=$SLURM_GPUS_ON_NODE
accelerate launch --num_processes $NGPU grpo.py --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct \
  --per_device_train_batch_size 4 --gradient_accumulation_steps $((128/(4*NGPU))) --bf16 \
  --use_vllm true --vllm_mode colocate --vllm_tensor_parallel_size 4
