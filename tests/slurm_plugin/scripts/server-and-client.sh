#!/bin/bash
#SBATCH --job-name=rag-eval
#SBATCH --nodes=1
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=32
#SBATCH --mem=160G
#SBATCH --time=06:00:00

source /opt/venvs/vllm/bin/activate
export VLLM_WORKER_MULTIPROC_METHOD=spawn
python -m vllm.entrypoints.openai.api_server --model mistralai/Mixtral-8x7B-Instruct-v0.1 -tp 2 --dtype bfloat16 --port 8123 > server.log 2>&1 &
SRV=$!
until curl -s localhost:8123/health; do sleep 5; kill -0 $SRV || exit 1; done
python eval_rag.py --endpoint http://localhost:8123/v1 --questions data/nq_open.jsonl --concurrency 64
kill $SRV
