#!/bin/bash
python -m sglang.launch_server --model-path m --tp-size $SLURM_GPUS_ON_NODE --dist-init-addr $HEAD:5000
