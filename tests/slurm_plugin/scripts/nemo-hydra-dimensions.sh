#!/bin/bash
#SBATCH --job-name=gpt-1.3b
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --mem=0

srun --container-image=/images/nemo-24.05.sqsh --container-mounts=/data \
  python /opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py \
  trainer.devices=-1 trainer.num_nodes=$SLURM_NNODES trainer.precision=bf16 \
  model.num_layers=24 model.hidden_size=2048 model.num_attention_heads=16 \
  model.encoder_seq_length=2048 model.max_position_embeddings=2048 \
  model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=1 \
  model.micro_batch_size=4 model.global_batch_size=256
