#!/bin/bash
#SBATCH --job-name=gpt2-xl-clm
#SBATCH --nodes=1
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=256G
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.out

module load cuda/12.1
source .venv/bin/activate

# the batch stays, however many GPUs we get
GLOBAL_BATCH=256
PER_DEVICE=4
ACCUM=$((GLOBAL_BATCH / (PER_DEVICE * SLURM_GPUS_ON_NODE)))
echo "accumulating $ACCUM steps"

torchrun --standalone --nproc_per_node=$SLURM_GPUS_ON_NODE run_clm.py \
    --model_name_or_path gpt2-xl \
    --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 \
    --per_device_train_batch_size $PER_DEVICE \
    --gradient_accumulation_steps $ACCUM \
    --block_size 1024 --bf16 \
    --do_train --output_dir $SCRATCH/gpt2-xl
