#!/bin/bash
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py
torchrun --nproc_per_node=1 eval.py
