#!/bin/bash
#SBATCH --job-name=elastic
#SBATCH --nodes=2 --gpus-per-node=8 --ntasks-per-node=1 --cpus-per-task=64 --mem=0
HOST=$(hostname)
srun torchrun --nnodes=1:4 --nproc-per-node=gpu --max-restarts=3 \
    --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$HOST:29400 \
    train.py --model gpt2-large --seq-length 1024 --global-batch-size 512 --micro-batch-size 2
