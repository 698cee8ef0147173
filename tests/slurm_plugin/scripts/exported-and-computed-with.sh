#!/bin/bash
N=$SLURM_GPUS_ON_NODE
export N
export OMP_NUM_THREADS=$(( SLURM_CPUS_ON_NODE / N ))
cat > run.json <<EOF
{"N": "$N", "name": "pretrain"}
EOF
torchrun --standalone --nproc-per-node=$N train.py --global-batch-size 64
