#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --time=4:00:00
torchrun --standalone --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --lr 3e-4
