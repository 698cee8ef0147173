#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=a100-80:8
cat > zeropp.json <<'END'
{
  "train_batch_size": 128,
  "zero_optimization": {"stage": 3, "zero_quantized_weights": true, "zero_hpz_partition_size": 8}
}
END
deepspeed pretrain.py --deepspeed_config zeropp.json
