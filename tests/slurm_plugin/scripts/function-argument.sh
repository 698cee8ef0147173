#!/bin/bash
run() { torchrun --nproc_per_node=$1 train.py; }
run 4
