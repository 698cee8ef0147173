#!/bin/bash
torchrun --nproc_per_node=gpu my_finetune.py
