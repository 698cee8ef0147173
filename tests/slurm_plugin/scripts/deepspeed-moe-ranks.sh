#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=a100:8
export OMP_NUM_THREADS=8
deepspeed --num_gpus $SLURM_GPUS_ON_NODE pretrain_gpt_moe.py --num-experts 16 --expert-interval 1 --moe-expert-parallel-size 8 \
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
  --micro-batch-size 2 --global-batch-size 128 --no-pipeline-parallel
