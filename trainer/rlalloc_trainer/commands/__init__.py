"""The commands ``rlalloc train …`` and ``rlalloc evaluate``."""
