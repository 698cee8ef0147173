#!/bin/bash
text-generation-launcher --model-id bigscience/bloom --num-shard 8
