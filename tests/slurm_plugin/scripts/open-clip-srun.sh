#!/bin/bash -x
#SBATCH --nodes=32
#SBATCH --gres=gpu:4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=6
#SBATCH --wait-all-nodes=1
#SBATCH --job-name=open_clip

eval "$(/path/to/conda/bin/conda shell.bash hook)"
conda activate open_clip
export MASTER_PORT=12802
master_addr=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR=$master_addr

cd /shared/open_clip/src
srun --cpu_bind=v --accel-bind=gn python -u -m open_clip_train.main \
    --save-frequency 1 --train-data="/data/LAION-400M/{00000..41455}.tar" --warmup 2000 \
    --batch-size=256 --epochs=32 --workers=8 --model ViT-B-32 --name "ViT-B-32-Vanilla" --seed 0 \
    --local-loss --gather-with-grad
