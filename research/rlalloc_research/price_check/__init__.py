"""What known-gain predicts of a size, against what comes of it when the simulator forces that size."""
