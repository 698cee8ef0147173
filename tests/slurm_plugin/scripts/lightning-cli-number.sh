#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=4 --cpus-per-task=16 --mem=256G
source activate pl
srun python finetune_lm.py fit --trainer.devices=4 --trainer.num_nodes=1 --trainer.strategy=ddp
