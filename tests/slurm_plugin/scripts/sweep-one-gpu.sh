#!/bin/bash
#SBATCH --job-name=lr-sweep
#SBATCH --array=1-20
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=6
#SBATCH --mem=48G
#SBATCH --time=08:00:00
LRS=(1e-5 2e-5 3e-5 5e-5 1e-4)
WD=(0 0.01 0.1 0.3)
i=$((SLURM_ARRAY_TASK_ID-1))
python run_glue.py --model_name_or_path roberta-large --task_name mnli --do_train --do_eval \
  --learning_rate ${LRS[$((i%5))]} --weight_decay ${WD[$((i/5))]} --per_device_train_batch_size 32 \
  --num_train_epochs 3 --fp16 --output_dir out/mnli-$SLURM_ARRAY_TASK_ID --overwrite_output_dir
