#!/usr/bin/env bash
#SBATCH --job-name litgpt-pythia
#SBATCH --gres gpu:4
#SBATCH --cpus-per-task 24
#SBATCH --mem 180G
#SBATCH --time 30:00:00
export PATH=$HOME/.pixi/bin:$PATH
cd $SLURM_SUBMIT_DIR
pixi run litgpt pretrain pythia-1.4b --data TextFiles --data.train_data_path /data/txt \
   --devices auto --train.global_batch_size 512 --train.micro_batch_size 8 --train.max_tokens 20_000_000_000 \
   --tokenizer_dir checkpoints/EleutherAI/pythia-1.4b --out_dir out/p14
