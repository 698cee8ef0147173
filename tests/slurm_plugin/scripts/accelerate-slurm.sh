#!/bin/bash
accelerate launch --multi_gpu --num_processes $SLURM_GPUS_ON_NODE train.py
