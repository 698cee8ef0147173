#!/bin/bash
N=$SLURM_GPUS_ON_NODE
while getopts "n:c:" opt; do
  case $opt in
    n) N=$OPTARG ;;
    c) CONFIG=$OPTARG ;;
  esac
done
torchrun --nproc_per_node=$N train.py --config "$CONFIG"
