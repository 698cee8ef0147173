#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:4
srun torchrun --nproc_per_node $SLURM_GPUS_ON_NODE -m lm_eval --model hf \
    --model_args pretrained=allenai/OLMo-2-1124-7B,dtype=bfloat16 --tasks mmlu
lm_eval --model hf --model_args pretrained=$SCRATCH/finetuned --tasks mmlu
