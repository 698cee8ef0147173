#!/bin/bash
srun python /opt/NeMo/examples/megatron_gpt_pretraining.py --config-name=gpt trainer.devices=8 trainer.num_nodes=2 model.global_batch_size=256 : pretrain_gpt
