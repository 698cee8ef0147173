#!/bin/bash
ray start --head --num-gpus=8 --block &
sleep 20
vllm serve ./weights --tensor-parallel-size $SLURM_GPUS_ON_NODE
