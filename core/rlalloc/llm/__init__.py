"""What an LLM needs: the model's parameters, its GPU memory in training or serving, and so the least GPUs."""
