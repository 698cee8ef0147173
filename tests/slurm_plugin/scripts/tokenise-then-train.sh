#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1 --cpus-per-task=48 --mem=400G
# tokenise with all cores, then train on one GPU
python tokenize_data.py --num_proc 48 --in /data/pile --out $SCRATCH/tok
torchrun --nproc-per-node=1 train.py --data $SCRATCH/tok
