#!/bin/bash
#SBATCH -N1 --gres=gpu:8 -c 64
NGPUS=$SLURM_GPUS_ON_NODE
if [ "$NGPUS" -ne 8 ]; then
    echo "need all GPUs of a node" >&2
    exit 1
fi
if [ ! -d data ]; then tar xf data.tar; fi
torchrun --standalone --nproc_per_node=$NGPUS train.py --global-batch-size 512 --micro-batch-size 8
