#!/bin/bash
source ./settings.env
torchrun --nproc_per_node=$GPUS_PER_JOB train.py
