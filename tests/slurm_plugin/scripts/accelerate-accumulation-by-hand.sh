#!/bin/bash -l
#SBATCH -J cpt-biomed
#SBATCH -p a100
#SBATCH -N 1
#SBATCH --gpus-per-node=8
#SBATCH -c 64
#SBATCH --mem=500GB
#SBATCH -t 3-00:00:00

conda activate cpt
NGPU=$(nvidia-smi -L | wc -l)
GLOBAL_BATCH=256
MICRO=4
GA=$(( GLOBAL_BATCH / (MICRO * NGPU) ))
echo "running on $NGPU gpus, accumulate $GA"

accelerate launch --num_processes $NGPU --mixed_precision bf16 \
  --use_deepspeed --zero_stage 3 \
  run_clm.py \
  --model_name_or_path meta-llama/Meta-Llama-3-8B \
  --train_file /data/biomed/train.jsonl \
  --per_device_train_batch_size $MICRO \
  --gradient_accumulation_steps $GA \
  --block_size 4096 \
  --do_train --bf16 --output_dir /scratch/cpt-biomed --save_steps 500
