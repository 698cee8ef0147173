#!/bin/bash
GPUS_PER_NODE=8
torchrun --nproc_per_node ${GPUS_PER_NODE} train.py
