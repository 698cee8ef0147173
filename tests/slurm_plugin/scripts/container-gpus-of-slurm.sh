#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:4
export NVIDIA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES
srun --container-image=nvcr.io/nvidia/pytorch:25.01-py3 \
    torchrun --nproc_per_node=gpu pretrain.py --global-batch-size 64
