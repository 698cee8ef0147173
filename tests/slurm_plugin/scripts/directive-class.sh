#!/bin/bash
#RLALLOC class=serve gpus=1-4
python serve_it.py
