"""Errors of job streams.

RlallocError
└── StreamError          a stream, a trace or a fitted model cannot be read or made
"""

from rlalloc.errors import RlallocError


class StreamError(RlallocError):
    """A file is wrong: where, which key, what was found, what is allowed."""
