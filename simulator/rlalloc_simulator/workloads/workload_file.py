"""The file of a workload: JSON lines, a header and then one job a line, read and written a line at a time.

The order is checked while it goes by: ids ascend strictly, so that none comes twice, and submissions never go back.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, get_args

import msgspec

from rlalloc.job import JOB_CLASSES
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import (
    FORMAT,
    VERSION,
    CurveName,
    DependencyKind,
    EndState,
    Header,
    WorkloadJob,
)

Decoded = TypeVar("Decoded")
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "class": JOB_CLASSES,
    "state": get_args(EndState),
    "kind": get_args(DependencyKind),
    "curve": get_args(CurveName),
}
"""What a key's value may be where msgspec only says that it may not be what it is."""
_MESSAGE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?", re.DOTALL)
_HEADER = msgspec.json.Decoder(Header)
_JOB = msgspec.json.Decoder(WorkloadJob)
_ENCODER = msgspec.json.Encoder()


@contextmanager
def open_workload(path: Path) -> Iterator[tuple[Header, Iterator[WorkloadJob]]]:
    """Open a workload: its header at once, its jobs as they are asked for. Raises WorkloadError."""
    try:
        file = path.open("rb")
    except OSError as err:
        raise WorkloadError(
            f"{path}: {err.strerror}; name a workload that rlalloc simulate convert or generate made"
        ) from err
    with file:
        header = _read_header(path, file.readline())
        yield header, _read_jobs(path, file)


def read_workload(path: Path) -> tuple[Header, list[WorkloadJob]]:
    """Read a whole workload into memory. Raises WorkloadError."""
    with open_workload(path) as (header, jobs):
        return header, list(jobs)


def write_workload(path: Path, header: Header, jobs: Iterable[WorkloadJob]) -> int:
    """Write a workload and return its number of jobs; what cannot be read back is refused with WorkloadError.

    The file appears whole or not at all.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            count = _write(path, file, header, jobs)
        unfinished.replace(path)
    except OSError as err:
        raise WorkloadError(f"{path}: {err.strerror}; name a file in a folder that you may write to") from err
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _write(path: Path, file: BinaryIO, header: Header, jobs: Iterable[WorkloadJob]) -> int:
    # Defaults are left out of jobs, but the first line must say what it is.
    described = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(header)}
    first = _ENCODER.encode(described)
    _read_header(path, first)
    file.write(first + b"\n")
    order = _Order(path)
    for count, job in enumerate(jobs, 1):
        line = _ENCODER.encode(job)
        order.check(count + 1, _decode(path, count + 1, _JOB, line))
        file.write(line + b"\n")
    return order.jobs


def _read_header(path: Path, line: bytes) -> Header:
    try:
        found = msgspec.json.decode(line, type=dict)
    except msgspec.MsgspecError as err:
        raise WorkloadError(f'{path}, line 1: not a header; it has to begin with {{"format":"{FORMAT}"') from err
    if found.get("format") != FORMAT:
        raise WorkloadError(
            f"{path}, line 1, key format: found {found.get('format')!r}, allowed is {FORMAT!r}; make a "
            "workload of another format with rlalloc simulate convert"
        )
    if found.get("version") != VERSION:
        raise WorkloadError(f"{path}, line 1, key version: found {found.get('version')!r}, allowed is {VERSION}")
    return _decode(path, 1, _HEADER, line)


def _read_jobs(path: Path, file: BinaryIO) -> Iterator[WorkloadJob]:
    order = _Order(path)
    for number, line in enumerate(file, 2):
        if line.isspace():
            continue
        job = _decode(path, number, _JOB, line)
        order.check(number, job)
        yield job


class _Order:
    """Holds a workload to ascending ids and submissions."""

    def __init__(self, path: Path) -> None:
        self.jobs = 0
        self._path = path
        self._last: WorkloadJob | None = None

    def check(self, line: int, job: WorkloadJob) -> None:
        last = self._last
        if last is not None and job.id <= last.id:
            raise WorkloadError(f"{self._path}, line {line}, key id: found {job.id}, allowed is above {last.id}")
        if last is not None and job.submit_s < last.submit_s:
            raise WorkloadError(
                f"{self._path}, line {line}, key submit_s: found {job.submit_s}, allowed is from {last.submit_s} on"
            )
        self._last = job
        self.jobs += 1


def _decode(path: Path, number: int, decoder: msgspec.json.Decoder[Decoded], line: bytes) -> Decoded:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as err:
        raise WorkloadError(f"{path}, line {number}{_explained(str(err), line)}") from err
    except msgspec.DecodeError as err:
        raise WorkloadError(f"{path}, line {number}: not JSON ({err}); write one object per line") from err


def _explained(message: str, line: bytes) -> str:
    """Turn msgspec's words into key, found and allowed."""
    match = _MESSAGE.fullmatch(message)
    if match is None or match["path"] is None:
        return f": {message}"
    keys = re.findall(r"[^.\[\]]+", match["path"].removeprefix("$"))
    allowed = match["what"].removeprefix("Expected ")
    if keys and keys[-1] in _WORDS and "enum" in allowed:
        allowed = ", ".join(_WORDS[keys[-1]])
    elif allowed == match["what"]:
        return f", key {'.'.join(keys)}: {allowed}" if keys else f": {allowed}"
    return f", key {'.'.join(keys)}: found {_value_at(line, keys)}, allowed: {allowed}"


def _value_at(line: bytes, keys: list[str]) -> str:
    """The JSON value that a path of keys and indexes leads to."""
    value: object = msgspec.json.decode(line)
    for key in keys:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            break
    return msgspec.json.encode(value).decode()
