#!/bin/bash
ray start --head --num-cpus 32 --num-gpus 8
python tune.py
