#!/bin/bash
srun --ntasks=8 --gpus-per-task=1 python train.py
