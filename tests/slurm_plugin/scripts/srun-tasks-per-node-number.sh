#!/bin/bash
#SBATCH --nodes=2
#SBATCH --tasks-per-node=8
#SBATCH --gpus-per-node=8
srun --mpi=pmix --tasks-per-node=8 --container-image=$HOME/nemo.sqsh \
    python pretrain_gpt.py trainer.devices=$SLURM_GPUS_ON_NODE trainer.num_nodes=$SLURM_NNODES model.global_batch_size=512
