#!/bin/bash
N=$SLURM_GPUS_ON_NODE
IFS=, read -r model lr wd batch seed N < <(sed -n "${SLURM_ARRAY_TASK_ID}p" grid.csv)
torchrun --nproc_per_node=$N train.py --model $model --lr $lr --wd $wd --batch $batch --seed $seed
