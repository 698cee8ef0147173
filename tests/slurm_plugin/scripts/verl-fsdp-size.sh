#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=h100:8
python3 -m verl.trainer.main_ppo \
    data.train_batch_size=512 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 \
    actor_rollout_ref.rollout.name=vllm \
    trainer.nnodes=$SLURM_NNODES \
    trainer.n_gpus_per_node=$SLURM_GPUS_ON_NODE
