#!/bin/bash
#SBATCH --nodes=4 --gpus-per-node=8 --ntasks-per-node=1 --cpus-per-task=64
for host in $(scontrol show hostnames); do echo "$host slots=8"; done > hostfile
deepspeed --hostfile hostfile --num_nodes $SLURM_NNODES --num_gpus 8 --master_addr $(head -n1 hostfile) train.py
