"""``rlalloc evaluate``: policies on the very same streams, over workloads, loads and settings."""
