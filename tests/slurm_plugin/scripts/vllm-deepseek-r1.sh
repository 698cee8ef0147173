#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --cpus-per-task=64 --mem=0 --exclusive
apptainer exec --nv --bind /models vllm-openai.sif \
    vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 8 --max-model-len 32768 --trust-remote-code
