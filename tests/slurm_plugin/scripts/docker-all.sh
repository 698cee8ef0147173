#!/bin/bash
docker run --gpus all vllm/vllm-openai vllm serve m --tensor-parallel-size $SLURM_GPUS_ON_NODE
