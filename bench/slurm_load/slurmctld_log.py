"""When slurmctld itself, by its log, took submissions and updates. Times are epoch seconds, with milliseconds."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(
    r"\[(?P<time>[^]]+)\] (?P<what>_slurm_rpc_submit_batch_job:|_slurm_rpc_update_job: complete) JobId=(?P<job>\d+)"
)


def last_updates(path: Path, job_ids: Iterable[int]) -> dict[int, float]:
    """When each job's last update was complete: the one that released it. Jobs without any are left out."""
    return _times(path, frozenset(job_ids), "_slurm_rpc_update_job: complete")


def submissions(path: Path, job_ids: Iterable[int]) -> dict[int, float]:
    """When slurmctld had stored each job."""
    return _times(path, frozenset(job_ids), "_slurm_rpc_submit_batch_job:")


def _times(path: Path, job_ids: frozenset[int], what: str) -> dict[int, float]:
    found: dict[int, float] = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = _LINE.match(line)
            if match is not None and match["what"] == what and int(match["job"]) in job_ids:
                found[int(match["job"])] = _epoch_s(match)
    return found


def _epoch_s(match: Mapping[str, str] | re.Match[str]) -> float:
    return datetime.fromisoformat(match["time"]).timestamp()  # slurmctld writes local time
