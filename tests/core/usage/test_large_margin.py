"""A large margin where what it gives back is worth its risk."""

import pytest

from rlalloc.usage.large_margin import MEMORY, OUTCOMES, LargeMargin

ALIKE = [100.0] * 20
ASKED, UNIT = 10_000.0, 1.0
EXCEEDED = 0.01


def after(*used: float, asked: float = ASKED, known: list[float] = ALIKE) -> LargeMargin:
    margin = LargeMargin(MEMORY, EXCEEDED)
    for each in used:
        margin.learn(known, each, asked, UNIT)
    return margin


def test_a_job_of_small_use_gets_the_smallest_factor_where_none_goes_beyond_it() -> None:
    assert after(*[100.0] * 1500).factor(ALIKE, ASKED, UNIT) == 2.5


def test_too_few_jobs_tell_nothing() -> None:
    assert after(*[100.0] * 19).factor(ALIKE, ASKED, UNIT) is None
    assert after(*[100.0] * 1500).factor([100.0, 900.0] * 10, ASKED, UNIT) is None  # none of these differed so much


def test_a_jump_calls_for_a_larger_factor() -> None:
    """One job in 300 uses five times as much: 2.5 would give back 3.5% more than 6, for 30 times a risk of 0.3%."""
    used = [500.0 if each % 300 == 150 else 100.0 for each in range(3000)]
    assert after(*used).factor(ALIKE, ASKED, UNIT) == 6.0


def test_where_little_would_be_given_back_nothing_is_risked() -> None:
    margin = after(*[100.0] * 1500, asked=270.0)
    assert margin.factor(ALIKE, 270.0, UNIT) == 2.5
    assert margin.factor(ALIKE, 250.0, UNIT) is None
    assert margin.factor(ALIKE, 270.0, 1024.0) is None  # sizes are whole GiB


def test_no_job_gets_it_while_too_many_would_have_gone_beyond() -> None:
    """A swarm of jobs uses 30 times as much as any before it; then all is as it was."""
    margin = after(*[100.0] * 1500)
    for _ in range(12):
        margin.learn(ALIKE, 3_000.0, ASKED, UNIT)
    assert margin.factor(ALIKE, ASKED, UNIT) is None
    for _ in range(OUTCOMES):
        margin.learn(ALIKE, 100.0, ASKED, UNIT)
    assert margin.factor(ALIKE, ASKED, UNIT) is not None


@pytest.mark.parametrize("asked", [0.0, 99.0])
def test_a_request_below_what_like_jobs_used_stays(asked: float) -> None:
    assert after(*[100.0] * 1500).factor(ALIKE, asked, UNIT) is None
