#!/bin/bash
mpirun -np 4 python hoomd_run.py
