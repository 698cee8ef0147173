#!/bin/bash
accelerate launch train.py --lr 1e-5
