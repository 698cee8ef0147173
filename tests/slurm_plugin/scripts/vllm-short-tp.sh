#!/bin/bash
vllm serve m -tp 2 -pp 2
