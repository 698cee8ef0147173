#!/bin/bash
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE run.py --deepspeed configs/zero3.json
