#!/bin/bash
srun -N 2 -n 16 -c 4 python train.py
