#!/bin/bash
torchrun train.py
