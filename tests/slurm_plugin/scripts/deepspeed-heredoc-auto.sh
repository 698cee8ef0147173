#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --cpus-per-task=64
cat > ds_config.json <<EOF
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "zero_optimization": { "stage": 3, "offload_optimizer": { "device": "cpu" } },
  "bf16": { "enabled": true }
}
EOF
deepspeed --master_port 29501 run.py --deepspeed ds_config.json
