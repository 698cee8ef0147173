#!/bin/bash
#SBATCH --job-name=mixtral-pretrain
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=112
#SBATCH --mem=0
#SBATCH --exclusive

export CUDA_DEVICE_MAX_CONNECTIONS=1
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)

DISTRIBUTED_ARGS=(
    --nproc_per_node $SLURM_GPUS_ON_NODE
    --nnodes $SLURM_NNODES
    --rdzv_backend c10d
    --rdzv_endpoint $MASTER_ADDR:29400
)
MODEL_ARGS=(
    --use-mcore-models --disable-bias-linear
    --seq-length 4096 --max-position-embeddings 32768
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights
)
MOE_ARGS=(
    --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm
    --expert-model-parallel-size 8
)
TRAINING_ARGS=(
    --micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --train-iters 500000 --bf16
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --use-distributed-optimizer
)
srun torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py "${MODEL_ARGS[@]}" "${MOE_ARGS[@]}" "${TRAINING_ARGS[@]}" \
    --save $SCRATCH/mixtral --tokenizer-model /models/tokenizer.model
