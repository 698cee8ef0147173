#!/bin/bash
module load openmpi
mpirun -np 8 python pretrain_gpt.py
