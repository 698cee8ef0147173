#!/bin/bash
#SBATCH --job-name=torchtitan_multi_node
#SBATCH --ntasks-per-node=1
#SBATCH --nodes=2
#SBATCH --gpus-per-node=h100:8
#SBATCH --cpus-per-task=96

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)

export FI_PROVIDER="efa"
export LOGLEVEL=INFO
export NCCL_DEBUG=WARN
CONFIG_FILE=${CONFIG_FILE:-"./torchtitan/models/llama3/train_configs/llama3_70b.toml"}

dcgmi profile --pause
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_id 101 --rdzv_backend c10d \
    --rdzv_endpoint "$head_node_ip:29500" -m torchtitan.train --job.config_file ${CONFIG_FILE} \
    --parallelism.tensor_parallel_degree=8 --parallelism.data_parallel_shard_degree=2 --training.local_batch_size=2
dcgmi profile --resume
