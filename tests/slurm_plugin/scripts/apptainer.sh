#!/bin/bash
module load apptainer
apptainer exec --nv --bind /scratch llm.sif torchrun --nproc_per_node=gpu train.py
