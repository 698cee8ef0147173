#!/bin/bash
tune run --nproc_per_node=$SLURM_GPUS_ON_NODE lora_finetune_distributed --config llama3/70B_lora batch_size=2
