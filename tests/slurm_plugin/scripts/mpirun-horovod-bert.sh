#!/bin/bash
#SBATCH -n 16 --gpus-per-task=1 -c 6
ml OpenMPI Horovod
mpirun -np $SLURM_NTASKS -bind-to none python hvd_bert_finetune.py --batch-size 32 --lr 5e-5
