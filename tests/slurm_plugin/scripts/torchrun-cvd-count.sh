#!/bin/bash
#SBATCH -N 1
#SBATCH --gres=gpu:a100:8
#SBATCH --cpus-per-task=64
NGPU=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\n' | wc -l)
export OMP_NUM_THREADS=8
python -m torch.distributed.run --standalone --nproc_per_node=$NGPU train_gpt2.py --total_batch_size 524288
