"""A family keeps its requests after a kill until enough of its jobs have completed."""

import msgspec

from rlalloc.past_job import PastJob
from rlalloc.usage.family_kills import FAMILIES, FamilyKills, Kill
from tests.core.history.test_history_readers import PAST

KILL = Kill(5, "out-of-memory", 5000.0, 2)


def well(number: int, started_s: float = 5000.0) -> PastJob:
    return msgspec.structs.replace(
        PAST, job_id=str(number), started_s=started_s, ended_s=started_s + 60, name="train-2"
    )


def test_it_goes_back_until_enough_completed() -> None:
    kills = FamilyKills()
    assert kills.in_force("ada", "train", 3) is None
    kills.add("ada", "train-1", KILL)
    assert kills.in_force("ada", "train-77", 3) == KILL  # digits apart
    assert kills.in_force("bob", "train", 3) is None
    kills.ended(well(1, started_s=4000.0))  # began before it
    kills.ended(msgspec.structs.replace(well(2), state="FAILED"))
    for _ in range(5):
        kills.ended(well(3))  # one job, heard of several times
    kills.ended(well(4))
    assert kills.in_force("ada", "train", 3) == KILL
    kills.ended(well(5))
    assert kills.in_force("ada", "train", 3) is None
    kills.add("ada", "train", KILL._replace(job_id=9, ended_s=9000.0))
    assert kills.in_force("ada", "train", 3) is not None


def test_gpus_that_were_too_few_are_remembered_beyond_that() -> None:
    kills = FamilyKills()
    kills.add("ada", "train", Kill(5, "gpu-out-of-memory", 5000.0, 2))
    kills.add("ada", "train", Kill(6, "out-of-memory", 6000.0, 4))
    assert kills.gpus_too_few("ada", "train") == 2
    assert kills.gpus_too_few("ada", "other") == 0


def test_families_are_bounded() -> None:
    kills = FamilyKills()
    for number in range(FAMILIES + 10):
        kills.add(f"user{number}x", "train", KILL)
    assert len(kills._families) == FAMILIES
