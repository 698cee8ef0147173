#!/bin/bash
#SBATCH --job-name=lm
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --signal=SIGUSR1@90

export NCCL_SOCKET_IFNAME=^docker0,lo
srun python train_lightning.py fit --trainer.devices=auto --trainer.num_nodes=$SLURM_NNODES \
    --trainer.strategy=ddp --data.batch_size=16 --model.learning_rate=3e-4
