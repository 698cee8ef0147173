"""What the process with pyslurm (pyslurm_process.py) tells rlallocd (pyslurm_reader.py), and in which form."""

from typing import Final

import msgspec

from rlallocd.slurm.slurm_records import JobRecord, NodeRecord

LENGTH_BYTES: Final = 8
"""Before each answer stands its length, most significant byte first."""


class PyslurmAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, or why nothing was: slurmctld does not answer, or its answer cannot be read.

    ``complete`` says of each job whether its record is.
    """

    jobs: tuple[JobRecord, ...] = ()
    complete: tuple[bool, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    unavailable: str = ""
    unreadable: str = ""


def encode(answer: PyslurmAnswer) -> bytes:
    """An answer with its length."""
    text = msgspec.msgpack.encode(answer)
    return len(text).to_bytes(LENGTH_BYTES) + text


def decode(text: bytes) -> PyslurmAnswer:
    """An answer without its length. Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(text, type=PyslurmAnswer)
