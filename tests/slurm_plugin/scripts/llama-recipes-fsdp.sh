#!/bin/bash
#SBATCH --job-name=llama2-70b-sft
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100:8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=96
#SBATCH --mem=1000G
#SBATCH --time=2-00:00:00

source ~/miniconda3/bin/activate llama
export NCCL_DEBUG=WARN
export TOKENIZERS_PARALLELISM=false

torchrun --nnodes 1 --nproc_per_node $SLURM_GPUS_ON_NODE \
    recipes/quickstart/finetuning/finetuning.py \
    --enable_fsdp --low_cpu_fsdp \
    --model_name meta-llama/Llama-2-70b-hf \
    --fsdp_config.pure_bf16 \
    --batch_size_training 2 \
    --num_epochs 3 \
    --dist_checkpoint_root_folder $SCRATCH/checkpoints \
    --dist_checkpoint_folder fine-tuned
