#!/bin/bash
#SBATCH -N1 --gres=gpu:4 -c 32
case $SLURM_GPUS_ON_NODE in
  4) LR=1e-4 ;;
  8) LR=2e-4 ;;
esac
torchrun --nproc_per_node=gpu train.py --lr $LR --global-batch-size 512 --micro-batch-size 8
