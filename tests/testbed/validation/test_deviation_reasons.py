"""Each reason on two runs that differ by it alone."""

import msgspec
import pytest

from rlalloc_validation.deviation_reasons import counts, explain
from rlalloc_validation.recorded_run import RanJob
from tests.testbed.validation.example_runs import SIZE, pairs, ran

OTHER = msgspec.structs.replace(SIZE, gpus_per_node=4)


@pytest.mark.parametrize(
    ("real", "engine", "job", "reason", "said"),
    [
        ([ran(1, 0, 0, 10)], [ran(1, 0, 20, 30, size=OTHER)], 1, "size", "4 GPUs"),
        (
            [ran(1, 0, 0, 70, state="TIMEOUT"), ran(2, 1, 71, 80)],
            [ran(1, 0, 0, 90, state="TIMEOUT"), ran(2, 1, 91, 100)],
            2,
            "limit",
            "job 1",
        ),
        (
            [ran(1, 0, 0, 30), ran(2, 1, 31, 40)],
            [ran(1, 0, 0, 50), ran(2, 1, 51, 60)],
            2,
            "follows",
            "job 1 ended 20 s later in the engine's run",
        ),
        (
            [ran(1, 0, 40, 50), ran(2, 1, 5, 30, nodes=(1,))],
            [ran(1, 0, 2, 12), ran(2, 1, 5, 30, nodes=(1,))],
            1,
            "passed",
            "job 2 started first in the real run alone",
        ),
        (
            [ran(1, 0, 20, 30, nodes=(1,)), ran(2, 1, 5, 9)],
            [ran(1, 0, 20, 30, nodes=(1,)), ran(2, 1, 50, 54)],
            2,
            "backfilled",
            "it passed job 1 in the real run alone",
        ),
        ([ran(1, 0, 0, 10)], [ran(1, 0, 6, 16)], 1, "pace", ""),
    ],
)
def test_a_reason(real: list[RanJob], engine: list[RanJob], job: int, reason: str, said: str) -> None:
    first = next(each for each in explain(pairs(real, engine), 5.0) if each.pair.real.number == job)
    assert first.reason == reason
    assert said in first.detail


def test_only_what_differs_is_explained_the_largest_difference_first() -> None:
    real = [ran(1, 0, 0, 10), ran(2, 0, 0, 10, nodes=(1,)), ran(3, 0, 0, 10, nodes=(2,))]
    engine = [ran(1, 0, 7, 17), ran(2, 0, 4, 14, nodes=(1,)), ran(3, 0, 9, 19, nodes=(2,))]
    explained = explain(pairs(real, engine), 5.0)
    assert [each.pair.real.number for each in explained] == [3, 1]
    assert counts(explained) == {"pace": 2}
