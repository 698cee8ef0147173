#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --ntasks-per-node=1 --cpus-per-task=96
srun python3 -m MaxText.train MaxText/configs/base.yml run_name=$SLURM_JOB_ID per_device_batch_size=4 hardware=gpu
