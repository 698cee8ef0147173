#!/bin/bash
try=0
until torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py; do
  let try+=1
  sleep 60
done
