#!/bin/bash
if hostname | grep -q big; then NGPU=8; else NGPU=4; fi
torchrun --nproc_per_node=$NGPU train.py
