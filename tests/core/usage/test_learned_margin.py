"""The margin holds its word on jobs that would have been trimmed, and says nothing where too few jobs tell."""

import math
import random

import pytest

from rlalloc.usage.learned_margin import LearnedMargin


def learned(number: int, seed: int = 1, room: float = 10.0) -> LearnedMargin:
    margin, chance = LearnedMargin(), random.Random(seed)
    for _ in range(number):
        margin.add(chance.gauss(0.0, 1.0), room)
    return margin


def test_too_few_jobs_tell_nothing() -> None:
    assert math.isinf(learned(98).bound(0.01))
    assert math.isinf(LearnedMargin().bound(0.2))
    assert learned(99).bound(0.01) < math.inf


@pytest.mark.parametrize("exceeded", [0.05, 0.01])
def test_at_most_the_stated_part_of_later_jobs_goes_beyond_it(exceeded: float) -> None:
    beyond = jobs = 0
    for seed in range(40):
        bound = learned(1000, seed).bound(exceeded)
        chance = random.Random(1000 + seed)
        beyond += sum(chance.gauss(0.0, 1.0) > bound for _ in range(1000))
        jobs += 1000
    assert exceeded / 5 < beyond / jobs <= exceeded


def test_the_part_is_that_of_the_jobs_which_it_would_have_trimmed() -> None:
    """Most jobs have no room. Of those that have, one in ten goes far beyond: they are not to be trimmed for that."""
    margin = LearnedMargin()
    for number in range(3000):
        margin.add(0.0, 0.5)
        if number % 10 == 0:
            margin.add(4.0 if number % 100 == 0 else 1.0, 5.0)
    assert margin.bound(0.01) >= 4.0


def test_lately_counts_by_itself() -> None:
    margin = learned(4400)
    before = margin.bound(0.01)
    for number in range(400):
        margin.add(3.5 if number % 20 == 0 else 0.0, 10.0)
    assert before < 3.0 < margin.bound(0.01)


def test_what_was_long_ago_is_forgotten() -> None:
    margin = LearnedMargin()
    for _ in range(5000):
        margin.add(3.0, 10.0)
    for _ in range(5000):
        margin.add(1.0, 10.0)
    assert margin.bound(0.01) == 1.0
