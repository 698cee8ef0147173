#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=a100:4 --cpus-per-task=32 --mem=256G
torchrun --standalone --nproc_per_node=$SLURM_GPUS_ON_NODE train.py --model facebook/opt-1.3b --out $SCRATCH/opt
vllm serve $SCRATCH/opt --tensor-parallel-size $SLURM_GPUS_ON_NODE &
python evaluate.py --url http://localhost:8000
