"""Learning from experts: their demonstrations, cloned before training, and a pull towards them while it goes on.

An expert is any reference policy by name (``rlalloc.heuristics.named``): RLAlloc4LM's FCFS, SJF and Round Robin, or a
better one. docs/results/imitation.md has results.
"""
