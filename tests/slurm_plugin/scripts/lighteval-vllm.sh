#!/bin/bash
#SBATCH --gpus-per-node=h100:8
module load cuda
source $HOME/evals/bin/activate
lighteval vllm "pretrained=Qwen/Qwen2.5-7B-Instruct,dtype=bfloat16,data_parallel_size=8" "lighteval|aime24|0"
