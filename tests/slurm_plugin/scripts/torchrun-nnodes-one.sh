#!/bin/bash
torchrun --nnodes=1 --nproc-per-node=gpu train.py
