#!/bin/bash
# 学習
torchrun --nproc_per_node=4 学習.py --名前 モデル
