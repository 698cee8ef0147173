#!/bin/bash
#SBATCH -p batch -N 2 -t 04:00:00 -J nemo:gpt3-5b
#SBATCH --ntasks-per-node=8 --gpus-per-node=8
#SBATCH --mem=0 --exclusive --overcommit

CONTAINER=nvcr.io/nvidia/nemo:24.05
MOUNTS=/lustre/data:/data,/lustre/results:/results

srun -o /results/%j.log --container-image="$CONTAINER" --container-mounts="$MOUNTS" --no-container-mount-home bash -c "
  cd /opt/NeMo && export PYTHONPATH=/opt/NeMo:\$PYTHONPATH &&
  CUDA_DEVICE_MAX_CONNECTIONS=1 python -u examples/nlp/language_modeling/megatron_gpt_pretraining.py \
    --config-path=/opt/NeMo-Framework-Launcher/launcher_scripts/conf/training/gpt3 --config-name=5b \
    trainer.num_nodes=2 trainer.devices=8 model.global_batch_size=2048"
