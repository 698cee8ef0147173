#!/bin/bash
GPUS=$SLURM_GPUS_ON_NODE
torchrun --nproc_per_node $GPUS train.py
