#!/bin/bash
python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --tp 4 --host 0.0.0.0
