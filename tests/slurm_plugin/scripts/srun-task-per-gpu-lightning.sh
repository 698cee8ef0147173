#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
export NCCL_DEBUG=INFO
srun python finetune_llm.py fit --trainer.strategy fsdp -c config.yaml
