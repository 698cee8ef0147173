#!/bin/bash
#SBATCH --gpus=2 --cpus-per-gpu=8 --mem-per-gpu=64G
export HF_HOME=$SCRATCH/hf
axolotl preprocess examples/llama-3/qlora-fsdp-70b.yaml
axolotl train examples/llama-3/qlora-fsdp-70b.yaml
