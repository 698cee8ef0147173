#!/bin/bash
pmemd.cuda -O -i md.in -o md.out
