#!/bin/bash
declare -A CFG=([gpus]=8 [lr]=2e-5)
torchrun --nproc_per_node=${CFG[gpus]} sft.py --lr ${CFG[lr]}
