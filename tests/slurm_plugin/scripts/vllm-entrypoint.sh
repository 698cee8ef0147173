#!/bin/bash
python -m vllm.entrypoints.openai.api_server --model /models/llama --tensor-parallel-size=8
