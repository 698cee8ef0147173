#!/bin/bash
#SBATCH --job-name=llama-405b
#SBATCH --nodes=2
#SBATCH --gpus-per-node=h100:8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --exclusive

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head_node=$(echo "$nodes" | head -n 1)
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)

srun --nodes=1 --ntasks=1 -w "$head_node" ray start --head --port=6379 --num-gpus=$SLURM_GPUS_ON_NODE --block &
sleep 15
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head_node" \
    ray start --address="$head_ip:6379" --num-gpus=$SLURM_GPUS_ON_NODE --block &
sleep 15
vllm serve meta-llama/Llama-3.1-405B-Instruct --tensor-parallel-size 8 --pipeline-parallel-size $SLURM_NNODES \
    --max-model-len 8192
