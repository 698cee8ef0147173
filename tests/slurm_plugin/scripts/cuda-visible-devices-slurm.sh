#!/bin/bash
export CUDA_VISIBLE_DEVICES=$SLURM_JOB_GPUS
torchrun --nproc_per_node=gpu train.py
