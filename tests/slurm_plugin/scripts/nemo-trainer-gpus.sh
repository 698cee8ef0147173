#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=4 --ntasks-per-node=4 --time=12:00:00
srun python examples/nlp/language_modeling/megatron_gpt_pretraining.py trainer.gpus=4 \
  trainer.num_nodes=$SLURM_NNODES model.global_batch_size=256 model.micro_batch_size=4
