#!/bin/bash
tune run --nproc_per_node 4 full_finetune_distributed --config llama3/8B_full
