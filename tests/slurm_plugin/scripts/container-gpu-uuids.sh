#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:4
export NVIDIA_VISIBLE_DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-d0a1b5b0-0a5c-4f5e-9a1e-1f3f0c9a7e11
srun --container-image=nvcr.io/nvidia/pytorch:25.01-py3 \
    torchrun --nproc_per_node=gpu pretrain.py --global-batch-size 64
