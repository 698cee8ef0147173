#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --cpus-per-task=96 --mem=0
export XLA_PYTHON_CLIENT_MEM_FRACTION=0.95
python -m EasyLM.models.llama.llama_train --mesh_dim='1,8,1' --dtype='bf16' --load_llama_config='7b' \
    --train_dataset.type='huggingface' --train_dataset.huggingface_dataset.batch_size=64 --total_steps=250000
