#!/bin/bash
vllm serve mistralai/Mixtral-8x7B-v0.1 --tensor-parallel-size $(nvidia-smi -L | wc -l)
