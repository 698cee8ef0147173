"""``rlalloc evaluate``: policies on the very same workloads, over scenarios, loads and settings."""
