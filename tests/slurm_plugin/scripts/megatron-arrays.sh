#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=2
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py --micro-batch-size 1 --global-batch-size 128
