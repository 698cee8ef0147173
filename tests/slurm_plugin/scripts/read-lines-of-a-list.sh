#!/bin/bash
while read -r shard url; do
  curl -sO "$url"
done < shards.txt
torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py
