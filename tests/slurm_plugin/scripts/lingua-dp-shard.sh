#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:8
#SBATCH --ntasks-per-node=1
cd $HOME/byte-lm
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE -m apps.pretrain.run \
    steps=20000 \
    data.global_batch_size=256 \
    model.dim=2048 \
    distributed.fsdp_type=full_shard \
    distributed.dp_shard=8 \
    distributed.tp_size=1
