"""The plans of make floor and make soak: what they cover, and that a seed gives one plan."""

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rlalloc_twins.floor_plan import floor_plan
from rlalloc_twins.plan_forms import FORMS
from rlalloc_twins.soak_plan import soak_plan
from rlalloc_twins.twin_plan import Plan, TwinError, read_plan, write_plan
from rlalloc_twins.twin_script import inner_script, script_of
from tests.daemon.forms import matrix


def test_the_floor_has_every_form_of_the_tables() -> None:
    """docs/explanation/submission-forms.md is written from the matrix."""
    assert {*matrix.FORMS, *matrix.SKIPPED} <= set(FORMS)
    assert {job.form for job in floor_plan(0, len(FORMS)).submissions} == set(FORMS)


def test_the_floor_has_all_that_users_do() -> None:
    jobs = floor_plan(0, 500).submissions
    events = [event for job in jobs for event in job.events]
    assert {event.doing for event in events} == {"update", "cancel", "hold", "release", "requeue"}
    updated = {word.partition("=")[0] for event in events for word in event.words}
    assert {"TimeLimit", "MinMemoryNode", "TresPerNode", "Features", "Partition", "ExcNodeList"} <= updated
    assert {kind for job in jobs if job.after for kind in [job.after[1]]} == {"afterok", "afterany"}
    kinds: Counter[str] = Counter()
    for job in jobs:
        kinds += Counter(
            lines=bool(job.lines), variables=bool(job.environment), comment="--comment" in str(job.options)
        )
        kinds += Counter(inner=bool(job.inner), requeues=job.requeues_itself, fails=bool(job.exit_status))
        kinds += Counter(rigid=not job.resizable, ranges=bool(job.directive))
    assert min(kinds.values()) >= 5
    assert len(kinds) == 8


def test_the_soak_has_windows_drains_limits_and_several_types() -> None:
    plan = soak_plan(0, 1000, 11)
    events = Counter(" ".join(event.words[:2]).split("=")[0] for event in plan.site_events)
    assert events["create reservation"] >= 4
    assert sum("State=DRAIN" in event.words for event in plan.site_events) == sum(
        "State=RESUME" in event.words for event in plan.site_events
    )
    words = " ".join(word for job in plan.submissions for word in job.options)
    assert {"v100", "a100", "h100"} <= set(re.findall(r"gpu:([a-z]\w+):", words))
    assert plan.limits
    assert plan.sampled


@pytest.mark.parametrize("plan", [floor_plan(3, 60), soak_plan(3, 60, 1)], ids=["floor", "soak"])
def test_a_seed_is_one_plan_and_a_file_keeps_it(plan: Plan, tmp_path: Path) -> None:
    again = floor_plan(3, 60) if not plan.sampled else soak_plan(3, 60, 1)
    assert again == plan
    write_plan(tmp_path / "new", plan)
    assert read_plan(tmp_path / "new") == plan
    with pytest.raises(TwinError, match="is not empty"):
        write_plan(tmp_path / "new", plan)
    with pytest.raises(TwinError, match="run the plan first"):
        read_plan(tmp_path)


def test_scripts_differ_in_nothing_but_the_plan() -> None:
    """Nothing of a site is in them: both sites get the same text."""
    (job,) = floor_plan(1, 1).submissions
    script = script_of(
        msgspec.structs.replace(job, directive="gpus=1-4", lines=("-N1",), resizable=True, exit_status=3)
    )
    assert script.splitlines()[:4] == ["#!/bin/bash", "#SBATCH -N1", "#RLALLOC gpus=1-4", ": torchrun train.py"]
    assert script.endswith("exit 3\n")
    inner = next(each for each in floor_plan(0, 500).submissions if each.inner is not None)
    assert inner.inner is not None
    assert "/seen/" in inner_script(f"{inner.key}-inner", inner.inner)
    assert inner.key + ".sh" in script_of(inner)
