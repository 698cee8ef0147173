#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:h100:2 --cpus-per-task=16 --mem=128G
uv run --with vllm vllm serve openai/gpt-oss-120b --tensor-parallel-size 1 --max-model-len 32768
