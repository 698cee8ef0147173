#!/bin/bash
srun --mem=200G torchrun --nproc_per_node=gpu train.py
