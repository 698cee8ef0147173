#!/bin/bash
source ~/miniconda3/etc/profile.d/conda.sh
conda activate llm
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py
