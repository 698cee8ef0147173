#!/bin/bash
#SBATCH --job-name=vllm-llama70b
#SBATCH --gres=gpu:h100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=256G
#SBATCH --time=08:00:00
#SBATCH --output=/home/%u/serve-%j.log

PORT=$(( 8000 + SLURM_JOB_ID % 1000 ))
echo "http://$(hostname):$PORT/v1" > ~/endpoint
apptainer exec --nv -B /models:/models vllm-openai_v0.6.3.sif \
   vllm serve /models/Llama-3.1-70B-Instruct \
     --tensor-parallel-size $SLURM_GPUS_ON_NODE \
     --max-model-len 16384 --gpu-memory-utilization 0.92 --port $PORT
