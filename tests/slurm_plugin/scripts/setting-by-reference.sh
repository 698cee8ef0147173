#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=300G --time=12:00:00
override() {
    local -n setting=$1
    setting=$2
}
for each in $(cat overrides.txt); do override "${each%%=*}" "${each#*=}"; done
torchrun --standalone --nproc_per_node=$SLURM_GPUS_ON_NODE train.py --model_name_or_path meta-llama/Llama-3.2-1B \
    --max_seq_length 2048 --bf16 --global-batch-size 256 --micro-batch-size 4
