#!/bin/bash
#SBATCH -N 2 --gpus-per-node=8 --ntasks-per-node=1
H=$(scontrol show hostname $SLURM_NODELIST | head -1)
srun --label bash -c "python -m sglang.launch_server --model-path Qwen/Qwen2.5-72B-Instruct --tp \$((SLURM_NNODES*8)) --nnodes \$SLURM_NNODES --node-rank \$SLURM_NODEID --dist-init-addr $H:5000"
