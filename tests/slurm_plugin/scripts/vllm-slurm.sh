#!/bin/bash
vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size $SLURM_GPUS_ON_NODE --max-model-len 8192
