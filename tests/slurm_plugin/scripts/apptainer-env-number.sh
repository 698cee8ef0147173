#!/bin/bash
NPROC=$SLURM_GPUS_ON_NODE
apptainer exec --nv --env NPROC=4 llm.sif bash -c 'torchrun --nproc_per_node=$NPROC train.py'
