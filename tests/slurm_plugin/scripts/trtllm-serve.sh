#!/bin/bash
trtllm-serve /engines/llama --tp_size 4 --backend pytorch
