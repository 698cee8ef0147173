"""Trimming replayed on a log: what is given back, who is killed, and that the future is not known."""

import random

import msgspec
import pytest

from rlalloc.past_job import PastJob
from rlalloc.usage.trimming_rules import TrimmingSection
from rlalloc.usage.usage_replay import LoggedUse, ReplayFigures, Run, UsageReplay
from tests.core.usage.test_past_usage import GIB, later

RULES = TrimmingSection(exceeded=0.02)


def figures(jobs: list[PastJob], first: int = 0) -> ReplayFigures:
    return UsageReplay(jobs, LoggedUse(jobs), RULES, first).run()


def steady(number: int) -> list[PastJob]:
    chance = random.Random(3)
    return [later(each, node_rss_mib=50 * GIB * chance.uniform(0.97, 1.0)) for each in range(number)]


def test_what_is_given_back_is_counted_by_hand() -> None:
    jobs = steady(400)
    found = figures(jobs, first=300)
    assert (found.jobs, found.trimmed, found.killed) == (100, 100, 0)
    over = sum(256 - (job.node_rss_mib or 0) / GIB for job in jobs[300:])
    assert found.over_asked_gib_hours == pytest.approx(over)
    # 50 GiB and a margin, in whole GiB of each of 4 GPUs
    assert 100 * (256 - 60) <= found.given_back_gib_hours <= 100 * (256 - 52)
    assert found.cpus_back == pytest.approx((16 - 3) / (16 - 2))


def test_nothing_is_trimmed_before_enough_has_ended() -> None:
    assert figures(steady(50)).trimmed == 0


def test_a_jump_kills_one_job_and_its_family_goes_back() -> None:
    jobs = steady(300)
    jumped = [msgspec.structs.replace(job, node_rss_mib=200 * GIB) for job in jobs[250:]]
    jumped[0] = msgspec.structs.replace(jumped[0], job_id="7+1")  # a part of a heterogeneous job
    found = figures([*jobs[:250], *jumped])
    assert found.killed == 1
    assert found.jobs == 300
    # What comes later than a kill changes nothing before it.
    assert figures(jobs[:251]).trimmed == figures([*jobs[:250], jumped[0]]).trimmed


def test_a_slower_run_is_counted_and_may_reach_its_limit() -> None:
    class SlowWithFewCpus:
        def run(self, _number: int, _node_mib: float, cpus_per_gpu: float) -> Run:
            return Run(killed=False, slowdown=2.0 if cpus_per_gpu < 16 else 1.0)

    jobs = [msgspec.structs.replace(job, limit_s=5000.0) for job in steady(300)]
    found = UsageReplay(jobs, SlowWithFewCpus(), RULES, first=200).run()
    assert found.timed_out == 100
    assert found.slowdown_hours == pytest.approx(found.run_hours)


def test_figures_add_up() -> None:
    one, two = figures(steady(300), first=150), figures(steady(300), first=150)
    two.add(one)
    assert (two.jobs, two.trimmed) == (300, 2 * one.trimmed)
    assert two.memory_back == pytest.approx(one.memory_back)
