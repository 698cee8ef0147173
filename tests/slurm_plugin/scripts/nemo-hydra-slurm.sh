#!/bin/bash
srun python megatron_gpt_finetuning.py trainer.devices=-1 trainer.num_nodes=$SLURM_NNODES \
  model.global_batch_size=256 model.micro_batch_size=4 model.tensor_model_parallel_size=2
