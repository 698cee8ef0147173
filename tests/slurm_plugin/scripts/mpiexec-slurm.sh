#!/bin/bash
mpiexec -n $SLURM_NTASKS python pretrain_gpt.py
