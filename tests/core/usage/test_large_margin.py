"""A large margin where what it gives back is worth its risk."""

import pytest

from rlalloc.usage.large_margin import OUTCOMES, LargeMargin

ALIKE = [100.0] * 20
ASKED, STEP = 10_000.0, 1.0
EXCEEDED = 0.01


def after(*used: float, asked: float = ASKED, least: float = 0.1) -> LargeMargin:
    margin = LargeMargin(least, EXCEEDED)
    for each in used:
        margin.learn(ALIKE, each, asked, STEP)
    return margin


def test_a_job_of_small_use_gets_the_smallest_factor_where_none_goes_beyond_it() -> None:
    assert after(*[100.0] * 1500).floor(ALIKE, ASKED, STEP) == 250.0


def test_too_few_jobs_tell_nothing() -> None:
    assert after(*[100.0] * 58).floor(ALIKE, ASKED, STEP) is None
    assert after(*[100.0] * 150).floor(ALIKE, ASKED, STEP) == 250.0
    assert after(*[100.0] * 1500).floor([100.0, 900.0] * 10, ASKED, STEP) is None  # none of these differed so much


def test_a_jump_calls_for_a_larger_factor() -> None:
    """One job in 300 uses five times as much: 2.5 would give back 3.5% more than 6, for 30 times a risk of 0.3%."""
    used = [500.0 if each % 300 == 150 else 100.0 for each in range(3000)]
    assert after(*used).floor(ALIKE, ASKED, STEP) == 600.0


def test_where_little_would_be_given_back_nothing_is_risked() -> None:
    margin = after(*[100.0] * 1500, asked=270.0)
    assert margin.floor(ALIKE, 270.0, STEP) == 250.0
    assert margin.floor(ALIKE, 252.0, STEP) is None  # 0.8% back, for 30 times a risk of 0.03%


def test_sizes_are_multiples_of_a_step() -> None:
    margin = after(*[100.0] * 1500)
    assert margin.floor(ALIKE, ASKED, 1024.0) == 1024.0
    assert margin.floor(ALIKE, 1024.0, 1024.0) is None


def test_no_margin_is_below_the_least() -> None:
    assert after(*[100.0] * 1500, least=2.5).floor(ALIKE, ASKED, STEP) == 400.0
    assert after(*[100.0] * 1500, least=50.0).floor(ALIKE, ASKED, STEP) is None


def test_no_job_gets_it_while_too_many_would_have_gone_beyond() -> None:
    """Some jobs use 30 times as much as any job before; the later jobs use as much as the earlier ones.

    Of 1,000 jobs, 15 may have gone beyond it: 5/3 of 1%, counted as if one more had.
    """
    margin = after(*[100.0] * 1500)
    for _ in range(15):
        margin.learn(ALIKE, 3_000.0, ASKED, STEP)
    assert margin.floor(ALIKE, ASKED, STEP) is not None
    margin.learn(ALIKE, 3_000.0, ASKED, STEP)
    assert margin.floor(ALIKE, ASKED, STEP) is None
    for _ in range(OUTCOMES):
        margin.learn(ALIKE, 100.0, ASKED, STEP)
    assert margin.floor(ALIKE, ASKED, STEP) is not None


@pytest.mark.parametrize("asked", [0.0, 99.0])
def test_a_request_below_what_like_jobs_used_stays(asked: float) -> None:
    assert after(*[100.0] * 1500).floor(ALIKE, asked, STEP) is None
