"""What a job held at once on one node is bounded from above."""

import pytest

from rlalloc.history import LogLines, ReadTally, read_sacct
from rlalloc.history.node_peaks import StepPeak, node_peak_mib

HEADER = "JobID|User|State|Submit|Start|End|AllocTRES|MaxRSS|TRESUsageInTot|NTasks|NNodes"
JOB = "7|ada|COMPLETED|1000|1100|1400|cpu=8,gres/gpu=4,mem=64G,node=2||||2"


def step(
    max_mib: float | None, all_mib: float | None, tasks: int | None, nodes: int | None, *times: float
) -> StepPeak:
    return StepPeak(times[0] if times else 0.0, times[1] if times else 100.0, max_mib, all_mib, tasks, nodes)


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([step(100.0, None, 4, 1)], 400.0),  # four tasks on one node
        ([step(100.0, 250.0, 4, 1)], 250.0),  # together they never had more than that
        ([step(100.0, None, 4, 2)], 200.0),  # two on each node
        ([step(100.0, None, 5, 2)], 400.0),  # four of five may be on one node
        ([step(100.0, None, None, 1)], None),  # how many tasks there were is not known
        ([step(None, 300.0, None, 2)], 300.0),
        ([step(None, None, 4, 1)], None),
        ([], None),
        ([step(100.0, None, 1, 1, 0, 50), step(80.0, None, 1, 1, 50, 90)], 100.0),  # one after the other
        ([step(100.0, None, 1, 1, 0, 50), step(80.0, None, 1, 1, 49, 90)], 180.0),  # at once
    ],
)
def test_the_most_that_a_node_can_have_held(steps: list[StepPeak], most: float | None) -> None:
    assert node_peak_mib(steps) == most


def test_it_is_read_from_the_steps_of_sacct() -> None:
    """The batch script waits while its step runs: both are on the first node."""
    lines = [
        "7.batch||COMPLETED|1100|1100|1400||10M|cpu=00:01,mem=10M|1|1",
        "7.0||COMPLETED|1110|1110|1390||2048M|cpu=00:10,mem=7G|4|2",
        "7.1||COMPLETED|1390|1390|1400||100M||1|1",
    ]
    text = "\n".join([HEADER, JOB, *lines]) + "\n"
    (job,) = read_sacct(LogLines.of_text(text), ReadTally())
    assert job.node_rss_mib == 10 + 2 * 2048
    assert job.max_rss_mib == 2048


def test_without_the_number_of_tasks_nothing_is_known() -> None:
    lines = ("JobID|User|State|Submit|Start|End|MaxRSS", "7|ada|COMPLETED|1|2|9|", "7.batch||COMPLETED|2|2|9|9M", "")
    (job,) = read_sacct(LogLines.of_text("\n".join(lines)), ReadTally())
    assert (job.max_rss_mib, job.node_rss_mib) == (9, None)
