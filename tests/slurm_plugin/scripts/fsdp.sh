#!/bin/bash
torchrun --nproc_per_node=gpu run_clm.py --fsdp "full_shard auto_wrap" --bf16
