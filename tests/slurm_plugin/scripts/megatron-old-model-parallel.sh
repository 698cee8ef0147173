#!/bin/bash -l
#SBATCH -J gpt2-345m
#SBATCH -N 1
#SBATCH --gres=gpu:8
#SBATCH -c 32
module load cuda/11.8
cd $HOME/Megatron-old
GPUS=$SLURM_GPUS_ON_NODE
python -m torch.distributed.launch --nproc_per_node $GPUS --master_port 29501 pretrain_gpt2.py \
   --model-parallel-size 8 --num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
   --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 --fp16
