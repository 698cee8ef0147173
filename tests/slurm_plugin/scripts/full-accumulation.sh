#!/bin/bash
torchrun --nproc_per_node=gpu t.py --train_batch_size 128 --micro-batch-size 4 --gradient_accumulation_steps=4
