#!/bin/bash
torchrun --nproc_per_node "unclosed train.py
