"""The commands ``rlalloc simulate …``."""
