#!/bin/bash
NGPU=$1
torchrun --nproc_per_node=$NGPU train.py
