#!/bin/bash
accelerate launch --config_file configs/fsdp.yaml --num_processes=$SLURM_GPUS_ON_NODE train.py
