#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=h100:8 --cpus-per-task=64 --mem=0
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
srun python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --trust-remote-code \
    --dist-init-addr $HEAD:20000 --nnodes 2 --node-rank $SLURM_NODEID --host 0.0.0.0 --port 40000
