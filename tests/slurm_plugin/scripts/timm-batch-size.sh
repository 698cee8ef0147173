#!/bin/bash
torchrun --nproc_per_node=gpu train.py /data/imagenet --model vit_base --batch-size 128
