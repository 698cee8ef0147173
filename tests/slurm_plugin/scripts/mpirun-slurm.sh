#!/bin/bash
mpirun -np $SLURM_NTASKS python pretrain_gpt.py
