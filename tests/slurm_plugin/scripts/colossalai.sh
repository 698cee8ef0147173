#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --ntasks-per-node=1
colossalai run --nproc_per_node $SLURM_GPUS_ON_NODE benchmark.py -c 7b --plugin 3d --tp 4 --pp 1 --zero 1 -b 32 --mbs 8
