"""The words that rlalloc's programs share: jobs, bounds, allocations, observations, messages, configuration.

Nothing here imports torch, opens a ZeroMQ socket or talks to Slurm.
"""

__version__ = "0.2.0"
