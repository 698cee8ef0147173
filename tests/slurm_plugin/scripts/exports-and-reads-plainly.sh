#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=400G --time=24:00:00
export MASTER_ADDR=$(hostname) NCCL_DEBUG=WARN HF_HOME="$SCRATCH/hf"
export NCCL_TIMEOUT=1800 TRITON_CACHE_DIR=$TMPDIR/triton
declare -r RUN=run-$SLURM_JOB_ID; readonly OUT="$SCRATCH/$RUN"
say() { local text="$1"; printf '%s %s\n' "$(date)" "$text"; }
printf -v STARTED '%(%F)T' -1
while IFS= read -r -d $'\0' shard; do say "found $shard"; done < <(find "$DATA" -name '*.bin' -print0)
torchrun --standalone --nproc_per_node=$SLURM_GPUS_ON_NODE train.py --model_name_or_path meta-llama/Llama-3.2-1B --max_seq_length 2048 --bf16 --global-batch-size 256 --micro-batch-size 4
