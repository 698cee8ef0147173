#!/bin/bash
#SBATCH --job-name=OLMo-7B
#SBATCH --nodes=4
#SBATCH --gpus-per-node=mi250x:8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=6
#SBATCH --time=48:00:00
#SBATCH --mem=0

module load LUMI/22.08 partition/G
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export MPICH_GPU_SUPPORT_ENABLED=1
export NCCL_SOCKET_IFNAME=hsn
export ROCM_PATH=/opt/rocm

srun --cpus-per-task=$SLURM_CPUS_PER_TASK --distribution=block:block --kill-on-bad-exit \
  scripts/run_with_environment.sh \
    singularity exec -B $PROJECT_DIR,$SCRATCH_DIR $CONTAINER \
      python scripts/train.py configs/official/OLMo-7B.yaml ${@} --run_name=${SLURM_JOB_ID}
