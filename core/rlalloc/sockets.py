"""Sockets of nodes, and how many jobs ask for."""

from typing import NamedTuple

from rlalloc.counted import counted


class Sockets(NamedTuple):
    """A node's sockets, the cores of each and the threads of those; 0: unknown.

    Or what a job asks for at least (``--sockets-per-node``, ``--cores-per-socket``, ``--threads-per-core``); 0: any.
    """

    sockets: int = 0
    cores: int = 0
    threads: int = 0

    def meet(self, asked: "Sockets") -> bool:
        """Whether a node that has these is enough for a job."""
        return self.sockets >= asked.sockets and self.cores >= asked.cores and self.threads >= asked.threads

    def describe(self) -> str:
        """What a job asks for, in words: ``at least 4 sockets, 16 cores a socket``; empty where every node has it."""
        parts = (
            counted(self.sockets, "socket") if self.sockets > 1 else "",
            f"{counted(self.cores, 'core')} a socket" if self.cores > 1 else "",
            f"{self.threads} threads a core" if self.threads > 1 else "",
        )
        asked = ", ".join(filter(None, parts))
        return asked and f"at least {asked}"
