#!/bin/bash
SINGULARITYENV_X=1 singularity exec --nv --env CUDA_VISIBLE_DEVICES=0,1,2,3 llm.sif torchrun --nproc_per_node=gpu train.py
