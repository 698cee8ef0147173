#!/bin/bash
# Größe: vier
export NAME=Jürgen
torchrun --nproc_per_node=gpu träin.py --run $NAME
