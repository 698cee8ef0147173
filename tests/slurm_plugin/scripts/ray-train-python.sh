#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32
srun --overlap symmetric-run --address "$HEAD:6379" --min-nodes $SLURM_NNODES -- python -u train_llm_ray.py
