#!/bin/bash
# torchrun --nproc_per_node=4 train.py
    # torchrun --nproc_per_node=2 debug.py
torchrun --nproc_per_node=gpu train.py
