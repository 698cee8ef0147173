#!/bin/bash
scontrol show hostnames > hosts; sed -i 's/$/ slots=8/' hosts
deepspeed --hostfile hosts train.py --deepspeed_config ds.json
