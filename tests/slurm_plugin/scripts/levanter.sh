#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=12
srun --container-image=levanter.sqsh python src/levanter/main/train_lm.py --config_path config/gpt2_small.yaml --trainer.train_batch_size 512
