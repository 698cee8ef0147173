#!/bin/bash
torchrun --nproc_per_node=auto --master_port 29500 main.py
