#!/bin/bash
torchrun --nproc_per_node=`python -c "import torch; print(torch.cuda.device_count())"` train.py
