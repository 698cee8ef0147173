#!/bin/bash
torchrun --nproc_per_node="$SLURM_GPUS_ON_NODE" --nnodes='1' train.py
