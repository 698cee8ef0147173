#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=8
DISTRIBUTED_ARGS="--nproc_per_node $SLURM_GPUS_ON_NODE --nnodes $SLURM_NNODES --master_port 6000"
MODEL_ARGS="--num-layers 32 --hidden-size 4096 --seq-length 2048"
srun torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $MODEL_ARGS \
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \
    --micro-batch-size 2 --global-batch-size 512 --bf16
