#!/bin/bash
cat <<'END' > ds.json
{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 2}
}
END
deepspeed train.py --deepspeed_config ds.json
