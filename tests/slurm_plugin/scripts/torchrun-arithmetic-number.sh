#!/bin/bash
NGPU=8
WORLD=$(($SLURM_NNODES * $NGPU))
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --world-size $WORLD
