#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32
# four finetunes side by side, a GPU each
for g in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$g python finetune.py --seed $g > log.$g 2>&1 &
done
wait
