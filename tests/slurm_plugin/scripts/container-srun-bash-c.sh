#!/bin/bash
srun --container-image=/images/nemo.sqsh bash -c 'torchrun --nproc_per_node=8 train.py'
