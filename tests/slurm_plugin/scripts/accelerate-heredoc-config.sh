#!/bin/bash
cat > acc.yaml <<END
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_processes: 4
END
accelerate launch --config_file acc.yaml train.py
