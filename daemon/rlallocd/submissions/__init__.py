"""Submissions: the tag that rlalloc.lua leaves, which jobs are ours to decide, and the sizes that they ask for."""
