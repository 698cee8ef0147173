#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=a100:4 --cpus-per-task=32 --mem=256G
source ~/venvs/vllm/bin/activate
python - <<'PY'
import torch
from vllm import LLM, SamplingParams

llm = LLM("meta-llama/Llama-2-70b-hf", tensor_parallel_size=torch.cuda.device_count())
for output in llm.generate(open("prompts.txt").read().splitlines(), SamplingParams(max_tokens=256)):
    print(output.outputs[0].text)
PY
