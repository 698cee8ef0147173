#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=400G --time=24:00:00
. /etc/profile.d/modules.sh
[ -f ~/.bashrc ] && . ~/.bashrc
source "$(conda info --base)/etc/profile.d/conda.sh"
eval "$(conda shell.bash hook)"
if ! source "${VENV:-$HOME/venvs/llm}"/bin/activate; then exit 1; fi
CONDA_SH=$HOME/miniforge3/etc/profile.d/conda.sh
source $CONDA_SH && conda activate llm
find . -name '*.tmp' -delete
cp "$HOME/tokenizer.model" . && eval `ssh-agent -s` > /dev/null
torchrun --standalone --nproc_per_node=$SLURM_GPUS_ON_NODE train.py --model_name_or_path meta-llama/Llama-3.2-1B --max_seq_length 2048 --bf16 --global-batch-size 256 --micro-batch-size 4
