#!/bin/bash
python3 -m verl.trainer.main_ppo data.train_batch_size=1024 trainer.n_gpus_per_node=8 trainer.nnodes=1
