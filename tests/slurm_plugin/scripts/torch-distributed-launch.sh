#!/bin/bash
python -m torch.distributed.launch --nproc_per_node=8 --use_env main.py --batch-size 64
