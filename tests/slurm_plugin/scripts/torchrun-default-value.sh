#!/bin/bash
torchrun --nproc-per-node=${SLURM_GPUS_ON_NODE:-8} train.py
