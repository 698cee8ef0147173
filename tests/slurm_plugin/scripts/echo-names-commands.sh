#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --cpus-per-task=32
echo "molecular dynamics; do not use torchrun --nproc-per-node=8 here"
echo 'vllm serve is in another script'
  echo accelerate launch is not needed
./gromacs_mdrun.sh -ntmpi 4
