#!/bin/bash
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE run_clm.py --per_device_train_batch_size 4 --gradient_accumulation_steps 8
