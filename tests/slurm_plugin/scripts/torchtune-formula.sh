#!/bin/bash
#SBATCH --gpus-per-node=4
srun tune run --nproc_per_node $SLURM_GPUS_ON_NODE full_finetune_distributed --config llama3_1/8B_full batch_size=4 gradient_accumulation_steps=$(( 64 / (4 * SLURM_GPUS_ON_NODE) ))
