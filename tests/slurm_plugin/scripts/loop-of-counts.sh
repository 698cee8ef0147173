#!/bin/bash
for n in 1 2 4 8; do
  torchrun --nproc_per_node=$n bench.py
done
