#!/bin/bash
python -m torch.distributed.run --nproc_per_node=$SLURM_GPUS_ON_NODE main.py
