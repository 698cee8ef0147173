"""Which sizes a profile measures: GPU counts, CPUs and memory, each with each. Pure functions."""

import re
from collections.abc import Sequence
from typing import Final

from rlalloc.counted import counted
from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import Conditions, Size

_MIB: Final = {"M": 1, "G": 1024, "T": 1024 * 1024}


def layouts_of(text: str, gpus_per_node: int) -> list[tuple[int, int]]:
    """Read ``1,2,8,2x4``: GPU counts, or nodes x GPUs of each. Returns pairs of GPUs and nodes. Raises ProfileError.

    A plain count gets as few nodes of ``gpus_per_node`` as hold it.
    """
    found = []
    for word in text.split(","):
        match = re.fullmatch(r"(?:([1-9]\d{0,4})x)?([1-9]\d{0,4})", word.strip())
        if match is None:
            raise ProfileError(
                f"--gpus {text}: {word.strip()!r} is no count; write, for example, 1,2,8 or 2x4 (nodes x GPUs)"
            )
        each = int(match[2])
        nodes = int(match[1]) if match[1] else -(-each // gpus_per_node)
        gpus = nodes * each if match[1] else each
        if gpus % nodes:
            raise ProfileError(
                f"--gpus {text}: {counted(gpus, 'GPU')} do not divide by {counted(nodes, 'node')} of {gpus_per_node}"
            )
        found.append((gpus, nodes))
    return sorted(set(found))


def counts_of(option: str, text: str) -> list[int]:
    """Read ``1,2,4``. Raises ProfileError."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,4}", word) for word in words):
        raise ProfileError(f"{option} {text}: write whole numbers from 1 on, separated by commas")
    return sorted({int(word) for word in words})


def memories_of(text: str) -> list[int]:
    """Read ``16G,32G`` as MiB; empty: no limit, which is 0. Raises ProfileError."""
    if not text:
        return [0]
    words = [word.strip() for word in text.split(",")]
    matches = [re.fullmatch(r"([1-9]\d{0,6})([MGT])", word) for word in words]
    if not all(matches):
        raise ProfileError(f"--mem-per-gpu {text}: write numbers with M, G or T, for example 8G,16G")
    return sorted({int(match[1]) * _MIB[match[2]] for match in matches if match})


def grid(layouts: Sequence[tuple[int, int]], cpus: Sequence[int], memories_mib: Sequence[int]) -> list[Size]:
    """All sizes; the fewest GPUs first, and of each the most CPUs and memory first: what is most worth knowing."""
    return [
        Size(gpus=gpus, nodes=nodes, cpus_per_gpu=each, mem_mib_per_gpu=mem_mib)
        for each in sorted(cpus, reverse=True)
        for mem_mib in sorted(memories_mib, reverse=True)
        for gpus, nodes in layouts
    ]


def check_batch(conditions: Conditions, sizes: Sequence[Size]) -> None:
    """Raise ProfileError where the global batch cannot be shared out equally."""
    wrong = sorted({size.gpus for size in sizes if conditions.global_batch % size.gpus})
    if wrong:
        raise ProfileError(
            f"--global-batch {conditions.global_batch} does not divide by {', '.join(map(str, wrong))} GPUs: "
            "choose another batch, or leave these counts out"
        )
