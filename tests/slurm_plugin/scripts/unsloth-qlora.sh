#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:1 --cpus-per-task=16 --mem=128G --time=1-00:00:00
source activate unsloth
python unsloth_sft.py --model unsloth/llama-3-8b-bnb-4bit --max_seq_length 4096 --load_in_4bit
