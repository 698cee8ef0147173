#!/bin/bash
accelerate launch trl/scripts/sft.py --model_name_or_path Qwen/Qwen2-0.5B --per_device_train_batch_size 8
