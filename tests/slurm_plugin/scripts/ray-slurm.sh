#!/bin/bash
ray start --head --num-gpus=$SLURM_GPUS_ON_NODE
vllm serve m --tensor-parallel-size=$SLURM_GPUS_ON_NODE
