#!/bin/bash
launch() {
  local nproc=$SLURM_GPUS_ON_NODE
  torchrun --nproc_per_node=$nproc "$@"
}
launch train.py --seed 1
launch eval.py
