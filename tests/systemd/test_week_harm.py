"""The week's comparison tells each harm. No site harms its jobs on demand, so what sacct says is made up here."""

from __future__ import annotations

import json
import subprocess
from typing import Any, cast

import pytest

from tests.systemd.systemd_container import Container
from tests.systemd.week_harm import harmed
from tests.systemd.week_jobs import KINDS, Ended

KIND = {kind.name: kind for kind in KINDS}
BEFORE = Ended(
    KIND["range"], "1", "COMPLETED", "0:0", {"cpu": "8", "gres/gpu": "4", "mem": "16G"}, "10", 100, 100, 110, 120
)
HALF = {"cpu": "4", "gres/gpu": "2", "mem": "8G"}
LATER = BEFORE._replace(
    kind=KIND["later"], job_id="2", tres={"cpu": "4", "gres/gpu": "2", "mem": "8G"}, started_s=115
)
DEPENDS = BEFORE._replace(
    kind=KIND["depends"], job_id="3", tres={"cpu": "2", "gres/gpu": "1", "mem": "4G"}, started_s=125
)
USUAL = [BEFORE, LATER, DEPENDS]


class Seen:
    """Answers `cat` of what a job's program saw: what sacct says it held, or something else."""

    def __init__(self, ended: list[Ended], other: dict[str, Any] | None = None) -> None:
        self.lines = {
            f"/home/{each.kind.user}/seen-{each.job_id}": json.dumps(
                other or {"gpus": each.gpus, "cpus": int(each.tres["cpu"])}
            )
            for each in ended
        }

    def run(self, *argv: str, check: bool) -> subprocess.CompletedProcess[str]:
        assert not check
        return subprocess.CompletedProcess(argv, 0, self.lines[argv[-1]], "")


def _told(ended: list[Ended], *, resizing: bool = True, other: dict[str, Any] | None = None) -> str:
    return "; ".join(harmed(cast(Container, Seen(ended, other)), ended, USUAL, resizing=resizing))


def test_what_is_as_before_or_allowed_is_no_harm() -> None:
    assert _told(USUAL, resizing=False) == ""
    assert _told([BEFORE._replace(tres=HALF, limit_min="23", eligible_s=160, started_s=300)]) == ""


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"state": "FAILED", "exit_code": "91:0"}, "ended as FAILED 91:0"),
        ({"tres": {**BEFORE.tres, "gres/gpu": "3"}}, "ran with 3 GPUs"),
        ({"tres": {**BEFORE.tres, "mem": "15G"}}, "held 15360 MiB with 4 GPUs"),
        ({"tres": {**BEFORE.tres, "node": "2"}}, "without rlalloc"),
        ({"tres": {**HALF, "cpu": "5"}, "limit_min": "20"}, "held 5 CPUs with 2 GPUs"),
        ({"tres": {**HALF, "mem": "7G"}, "limit_min": "20"}, "held 7168 MiB with 2 GPUs"),
        ({"limit_min": "20"}, "had a limit of 20 minutes"),
        ({"tres": HALF, "limit_min": "9"}, "on fewer GPUs"),
        ({"eligible_s": 300, "started_s": 301}, "after its grace time"),
    ],
)
def test_a_harm_is_told(changed: dict[str, Any], problem: str) -> None:
    assert problem in _told([BEFORE._replace(**changed)])


def test_cpus_and_memory_are_within_what_users_and_site_allow() -> None:
    """The user's own range, or the shipped floor of 8 CPUs a GPU where the request has more."""
    asked = {"gres/gpu": "1", "cpu": "14", "mem": "4G"}
    before = BEFORE._replace(kind=KIND["many-cpus"], job_id="4", tres=asked)
    roomy = BEFORE._replace(kind=KIND["roomy"], job_id="5", tres={"gres/gpu": "2", "cpu": "12", "mem": "40G"})

    def told(each: Ended, *, resizing: bool = True, **tres: str) -> str:
        changed = each._replace(tres={**each.tres, **tres})
        return "; ".join(harmed(cast(Container, Seen([changed])), [changed], [before, roomy], resizing=resizing))

    assert told(before, cpu="8") == told(roomy, cpu="2", mem="4G") == told(roomy, cpu="7", mem="5000M") == ""
    assert "held 8 CPUs with 1 GPUs" in told(before, resizing=False, cpu="8")
    assert "held 7 CPUs with 1 GPUs" in told(before, cpu="7")
    assert "held 3072 MiB" in told(before, mem="3G")
    assert "held 1 CPUs" in told(roomy, cpu="1")
    assert "held 3072 MiB" in told(roomy, mem="3G")
    assert "held 13 CPUs" in told(roomy, cpu="13")
    assert before._replace(tres={**asked, "cpu": "8"}).trimmed
    assert not before.trimmed


def test_a_size_of_ours_is_a_harm_where_nothing_is_resized() -> None:
    assert "ran with 2 GPUs" in _told([BEFORE._replace(tres=HALF)], resizing=False)


def test_what_users_ask_for_their_start_is_kept() -> None:
    assert "before its --begin" in _told([LATER._replace(started_s=105)])
    assert "job 1, on which it depends, had ended" in _told([BEFORE, DEPENDS._replace(started_s=115)])
    another = BEFORE._replace(job_id="0", submitted_s=90, ended_s=300)
    assert _told([another, BEFORE, DEPENDS]) == ""


def test_a_second_run_and_a_wrong_environment_are_told() -> None:
    assert "was requeued" in _told([BEFORE, BEFORE._replace(started_s=130, ended_s=140)])
    assert "saw" in _told([BEFORE], other={"gpus": 4, "cpus": 16})
