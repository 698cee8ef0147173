#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=200G
cat > acc.yaml <<EOF
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 1
num_processes: ${SLURM_GPUS_ON_NODE}
EOF
accelerate launch --config_file acc.yaml train.py --global_batch_size 64 --micro_batch_size 4
