#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
echo "torchrun --nproc-per-node=4 train.py" > run.sh
bash run.sh
