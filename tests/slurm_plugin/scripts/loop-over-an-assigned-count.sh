#!/bin/bash
N=$SLURM_GPUS_ON_NODE
for N in 1 2 4 8; do
  torchrun --standalone --nproc_per_node=$N bench.py --out result_$N.json
done
