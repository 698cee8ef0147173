#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:8
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE run.py trainer.global_batch_size=128 trainer.tp_size=1 trainer.cp_size=4
