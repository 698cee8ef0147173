#!/bin/bash
#SBATCH --job-name=tgi --nodes=1 --gpus-per-node=a100:4 --cpus-per-task=32 --mem=256G
export HUGGINGFACE_HUB_CACHE=/scratch/hub
apptainer exec --nv --bind /scratch docker://ghcr.io/huggingface/text-generation-inference:2.0 \
    text-generation-launcher --model-id mistralai/Mixtral-8x7B-Instruct-v0.1 \
    --num-shard $SLURM_GPUS_ON_NODE --max-total-tokens 8192 --port 8080
