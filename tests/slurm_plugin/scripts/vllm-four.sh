#!/bin/bash
vllm serve Qwen/Qwen2.5-72B --tensor-parallel-size 4 --port 8000
