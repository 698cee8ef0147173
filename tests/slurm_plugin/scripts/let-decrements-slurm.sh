#!/bin/bash
let SLURM_GPUS_ON_NODE--
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64
