#!/bin/bash
module load gromacs
gmx mdrun -deffnm md -nb gpu -ntomp 8
