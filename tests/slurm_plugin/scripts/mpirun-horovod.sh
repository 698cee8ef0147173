#!/bin/bash
#SBATCH -N2 --gpus-per-node=4 --ntasks-per-node=4 -c 12
module load openmpi horovod
mpirun -np $SLURM_NTASKS --bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH \
    python finetune_bert_horovod.py --batch-per-gpu 32
