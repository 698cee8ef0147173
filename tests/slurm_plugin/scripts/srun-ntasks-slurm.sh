#!/bin/bash
srun -n $SLURM_NTASKS python train.py
