#!/bin/bash
#SBATCH --job-name=lm-eval
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=200G --time=06:00:00
module load cuda/12.1
source ~/venvs/eval/bin/activate
accelerate launch --multi_gpu --num_processes $SLURM_GPUS_ON_NODE -m lm_eval --model hf \
  --model_args pretrained=meta-llama/Llama-2-7b-hf,dtype=bfloat16 --tasks mmlu,hellaswag --batch_size 8
