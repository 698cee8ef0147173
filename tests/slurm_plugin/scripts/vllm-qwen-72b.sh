#!/bin/bash
#SBATCH --job-name=qwen-api
#SBATCH --nodes=1
#SBATCH --gres=gpu:h100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=256G
#SBATCH --time=8:00:00

module load cuda/12.4
source ~/venvs/vllm/bin/activate
export HF_HUB_OFFLINE=1

vllm serve Qwen/Qwen2.5-72B-Instruct \
    --tensor-parallel-size $SLURM_GPUS_ON_NODE \
    --max-model-len 16384 --gpu-memory-utilization 0.92 \
    --host 0.0.0.0 --port $((8000 + SLURM_JOB_ID % 1000))
