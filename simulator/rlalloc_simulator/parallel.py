"""A ``map`` over processes, whose results come in the order of the tasks."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Final, Protocol, TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class ParallelMap(Protocol):
    """Like the built-in ``map``: yields the results of tasks in their order."""

    def __call__(self, function: Callable[[Task], Answer], tasks: Sequence[Task], /) -> Iterator[Answer]:
        """Apply ``function`` to each of ``tasks``."""
        ...


@contextmanager
def processes(count: int) -> Iterator[ParallelMap]:
    """Yield a map over ``count`` processes; for a single process the built-in one."""
    if count <= 1:
        yield map
        return
    # spawn: a fork of a process that runs torch's threads may hang.
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_prepare_worker)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Use one thread, and end with the parent: else the workers of a killed trainer would wait for ever."""
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is first imported, which tasks of the trainer do
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    parent = parent_process()
    if parent is not None and parent.pid != os.getppid():
        raise SystemExit("the trainer died before its worker had started")  # no signal comes of that any more
