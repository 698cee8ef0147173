#!/bin/bash
cat > t.py <<END
from transformers import TrainingArguments
args = TrainingArguments(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=8)
END
torchrun --nproc_per_node=gpu t.py
