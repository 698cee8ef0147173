#!/bin/bash
docker run --gpus 2 vllm/vllm-openai vllm serve m --tensor-parallel-size $SLURM_GPUS_ON_NODE
