#!/bin/bash
#SBATCH -p gpu -N 2 --gpus-per-node=8 --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST|head -n1)
srun bash -c 'NNODES=$SLURM_NNODES NODE_RANK=$SLURM_PROCID NPROC_PER_NODE=$SLURM_GPUS_ON_NODE megatron sft --load Qwen2.5-14B-mcore --dataset alpaca --tensor_model_parallel_size 4 --global_batch_size 64 --micro_batch_size 2 --recompute_granularity full --save out'
