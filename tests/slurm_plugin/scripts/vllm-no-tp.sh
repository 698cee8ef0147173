#!/bin/bash
vllm serve facebook/opt-125m
