#!/bin/bash
srun --container-image=nvcr.io/nvidia/pytorch:24.07-py3 --container-mounts=/data:/data \
     torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE /workspace/train.py
