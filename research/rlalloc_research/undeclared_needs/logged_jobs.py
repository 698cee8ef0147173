"""Arrivals, users, sizes and run times of real sites, as past jobs without any use of memory or CPUs.

LLNL Atlas has users and executables. Philly has virtual clusters only, and Kalos nothing of the kind: there a job's
user and name are drawn, with a fixed seed. A node has 8 GPUs; of Atlas, a processor stands for a GPU.
"""

import csv
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.errors import HistoryError
from rlalloc.history import ReadTally, read_file
from rlalloc.past_job import PastJob, in_order_of_submission

NODE_GPUS: Final = 8
_USERS_OF_A_VC: Final = 25
_NAMES_OF_A_USER: Final = 6
_LIMITS_S: Final = tuple(hours * 3600.0 for hours in (1, 4, 12, 24, 48, 168))


def atlas(data: Path, last: int) -> list[PastJob]:
    """The last jobs of LLNL Atlas. Raises HistoryError."""
    jobs = in_order_of_submission(read_file(data / "swf" / "llnl-atlas-2006.swf", "swf", ReadTally()))
    return [
        msgspec.structs.replace(_sized(job, job.cpus), job_id=str(number)) for number, job in enumerate(jobs[-last:])
    ]


def philly(data: Path, last: int) -> list[PastJob]:
    """The last jobs of Philly, each of a drawn user of its virtual cluster. Raises HistoryError."""
    rows = _rows(data / "philly" / "philly.csv")
    read = [
        (_epoch_s(row["timestamp"]), float(row["duration"]), int(row["num_gpus"]), row["cluster"])
        for row in rows
    ]  # fmt: skip
    return _drawn(sorted(read)[-last:])


def kalos(data: Path, last: int) -> list[PastJob]:
    """The jobs of Kalos, each of a drawn user. Raises HistoryError."""
    rows = _rows(data / "kalos" / "converted_kalos_trace.csv")
    read = [
        (float(row["arrival_time"]), float(row["num_iteration"]) * float(row["iteration_computing_time"]),
         int(row["gpu_workers"]) , "kalos")
        for row in rows
    ]  # fmt: skip
    return _drawn(sorted(read)[-last:])


LOGS: Final[dict[str, Callable[[Path, int], list[PastJob]]]] = {"Atlas": atlas, "Philly": philly, "Kalos": kalos}


def _drawn(read: list[tuple[float, float, int, str]]) -> list[PastJob]:
    """Users and names by Zipf's law; a user goes on with one name for a while, as people do."""
    chance = random.Random(1)
    weights = [1.0 / rank for rank in range(1, _USERS_OF_A_VC + 1)]
    latest: dict[str, str] = {}
    jobs = []
    for number, (submitted_s, run_s, gpus, cluster) in enumerate(read):
        user = f"{cluster}-{chance.choices(range(_USERS_OF_A_VC), weights)[0]}"
        if user not in latest or chance.random() < 0.1:
            latest[user] = f"train-{'abcdefghij'[chance.randrange(_NAMES_OF_A_USER)]}"
        fitting = [limit for limit in _LIMITS_S if limit >= run_s] or [_LIMITS_S[-1]]
        job = PastJob(
            job_id=str(number),
            user=user,
            account=cluster,
            partition="gpu",
            name=latest[user],
            submitted_s=submitted_s,
            started_s=submitted_s + 60.0,
            ended_s=submitted_s + 60.0 + max(run_s, 1.0),
            state="COMPLETED",
            nodes=1,
            cpus=1,
            limit_s=fitting[0] if chance.random() < 0.5 else max(_LIMITS_S[-1], run_s),
        )
        jobs.append(_sized(job, max(1, gpus)))
    return jobs


def _epoch_s(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp + "+00:00").timestamp()


def _sized(job: PastJob, gpus: int) -> PastJob:
    nodes = -(-gpus // NODE_GPUS)
    return msgspec.structs.replace(job, gpus=nodes * NODE_GPUS if nodes > 1 else gpus, nodes=nodes)


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, csv.Error) as err:
        raise HistoryError(f"{path}: {err}; --data names the folder of the published tables") from err
