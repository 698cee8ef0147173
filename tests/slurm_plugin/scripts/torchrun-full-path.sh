#!/bin/bash
/opt/venvs/llm/bin/torchrun --nproc-per-node=gpu /home/alice/train.py
