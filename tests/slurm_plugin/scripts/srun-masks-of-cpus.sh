#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=7 --mem=480G
CPU_BIND="mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000"
srun --cpu-bind=${CPU_BIND} python pretrain_gpt.py --model gpt2-medium --seq-length 1024 \
   --micro-batch-size 8 --global-batch-size 256
