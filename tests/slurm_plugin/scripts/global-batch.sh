#!/bin/bash
torchrun --nproc_per_node=gpu train.py --global-batch-size 256
