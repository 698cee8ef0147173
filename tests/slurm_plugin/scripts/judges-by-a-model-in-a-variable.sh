#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:8
#SBATCH --ntasks-per-node=1
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE sft_train.py \
    --model_name_or_path Qwen/Qwen2.5-0.5B --global_batch_size 256 --micro_batch_size 2 \
    --max_seq_length 2048 --bf16 --gradient_checkpointing
python judge_answers.py --model "$JUDGE" --answers $SCRATCH/answers.jsonl
