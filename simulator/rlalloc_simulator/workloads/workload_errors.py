"""Errors of job workloads.

RlallocError
└── WorkloadError          a workload, a trace or a fitted model cannot be read or made
"""

from rlalloc.errors import RlallocError


class WorkloadError(RlallocError):
    """A file is wrong: where, which key, what was found, what is allowed."""
