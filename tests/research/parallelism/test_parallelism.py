"""GPU counts and parallelism: the model of costs, the decision process, the oracle, tables and SAC."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pytest

from rlalloc_research.parallelism.categorical_sac import CategoricalSettings
from rlalloc_research.parallelism.fixed_policy import FixedPlans
from rlalloc_research.parallelism.parallelism_comparison import (
    ComparisonSettings,
    Examination,
    Figures,
    compare,
    examination_by,
    examine,
    macro_scores,
)
from rlalloc_research.parallelism.parallelism_environment import MOST_IN_USE, in_use_next, rewards
from rlalloc_research.parallelism.performance_model import consequences
from rlalloc_research.parallelism.plans import PLANS, Plan, plan_of
from rlalloc_research.parallelism.sac_learner import FEATURES, SacPlansSettings, learn_sac, observed
from rlalloc_research.parallelism.tabular_learners import Method, TableSettings, learn_table

SMALL, LARGE = 0.0, 0.9
METHODS: Final[tuple[Method, ...]] = ("q-learning", "sarsa")
Task = TypeVar("Task")
Answer = TypeVar("Answer")
COSTS = {"cpu": 0, "memory": 1, "latency": 2, "energy": 3, "bandwidth": 4}
PLACES = 5
QUICK = ComparisonSettings(
    seeds=1, oracle_places=PLACES, tables=TableSettings(episodes=100), sac=SacPlansSettings(episodes=10, walkers=10)
)


@pytest.fixture(scope="module")
def examination() -> Examination:
    return examination_by(PLACES)[0]


@pytest.fixture(scope="module")
def best() -> Figures:
    return examination_by(PLACES)[1]


def situation(size: float, *, cpus: float = 0.0, memory: float = 0.0, links: float = 0.0) -> np.ndarray:
    return np.array([cpus, memory, links, size])


def test_kinds_are_what_their_names_say() -> None:
    assert plan_of(8, "data") == Plan(replicas=8, parts=1)
    assert plan_of(8, "model") == Plan(replicas=1, parts=8)
    assert plan_of(8, "hybrid") == Plan(replicas=4, parts=2)
    assert plan_of(2, "hybrid") == plan_of(2, "model")
    assert len(PLANS) == 12
    assert all(plan_of(plan.gpus, plan.kind) == plan for plan in PLANS)


def test_a_model_that_no_gpu_holds_has_to_be_split() -> None:
    """12 billion parameters are 190 GB of state: four parts fit 80 GB, two do not."""
    fits = np.isfinite(consequences(situation(LARGE)).run_s)
    assert [plan.parts >= 4 for plan in PLANS] == fits.tolist()


def test_one_gpu_computes_and_talks_to_nobody() -> None:
    """0.3 billion parameters, 1e8 tokens: 6·0.3e9·1e8 operations at 156 TFLOP/s, at 400 W."""
    seen = consequences(situation(SMALL))
    alone = PLANS.index(Plan(1, 1))
    assert seen.run_s[alone] == pytest.approx(6 * 0.3e9 * 1e8 / 156e12)
    assert seen.energy_j[alone] == pytest.approx(400 * seen.run_s[alone])
    assert seen.costs[alone, COSTS["bandwidth"]] == 0.0


def test_links_in_use_slow_down_only_what_crosses_nodes() -> None:
    free, busy = consequences(situation(SMALL)), consequences(situation(SMALL, links=0.8))
    slower = busy.run_s > free.run_s * (1 + 1e-9)
    assert slower.tolist() == [plan.gpus > 4 for plan in PLANS]


def test_cpus_in_use_slow_down_who_needs_more_than_are_left() -> None:
    """Ten CPUs are left of 128: enough for one GPU (6) and two parts (8), not for two replicas (12)."""
    seen, free = consequences(situation(SMALL, cpus=1 - 10 / 128)), consequences(situation(SMALL))
    slower = dict(zip(PLANS, (seen.run_s > free.run_s).tolist(), strict=True))
    assert not slower[Plan(1, 1)]
    assert not slower[Plan(1, 2)]
    assert slower[Plan(2, 1)]


def test_rewards_lie_between_0_and_1_and_are_0_for_what_does_not_fit() -> None:
    situations = np.random.default_rng(0).random((200, 4))
    seen = consequences(situations)
    assert ((rewards(seen) >= -1e-12) & (rewards(seen) <= 1)).all()
    assert rewards(seen)[~np.isfinite(seen.run_s)] == pytest.approx(0.0)


def test_what_a_plan_takes_is_in_use_for_the_next_job_until_it_ends() -> None:
    here, nobody = situation(SMALL, cpus=0.2), np.zeros(3)
    seen = consequences(here)
    at_once = in_use_next(here, seen, 0.0, nobody)
    assert at_once == pytest.approx(np.minimum(here[:3] + seen.taken, MOST_IN_USE))
    assert in_use_next(here, seen, 1e9, nobody) == pytest.approx(0.0)
    assert (in_use_next(here, seen, 600.0, nobody) <= at_once).all()
    assert in_use_next(here, seen, 1e9, np.array([0.1, 0.2, 0.3]))[0].tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_the_oracle_is_better_than_looking_no_further_than_the_job(best: Figures, examination: Examination) -> None:
    greedy = examine(lambda situations: rewards(consequences(situations)).argmax(axis=-1), examination)
    fixed = examine(FixedPlans(examination.situations, examination.worth).choose, examination)
    assert best.accuracy == best.precision == best.f1 == best.within == 1.0
    assert best.reward > greedy.reward > fixed.reward


@pytest.mark.parametrize("method", METHODS)
def test_a_table_comes_to_choose_nearly_as_well_as_the_oracle(
    method: Method, best: Figures, examination: Examination
) -> None:
    learned = examine(learn_table(method, TableSettings(episodes=2000), seed=0).choose, examination)
    knows_nothing = examine(learn_table(method, TableSettings(episodes=0), seed=0).choose, examination)
    assert knows_nothing.reward < 0.9 * best.reward < learned.reward


def test_the_two_methods_differ_only_in_what_they_expect_next() -> None:
    """Without exploring, SARSA's next decision is the best one: both tables are the same."""
    settings = TableSettings(episodes=200, explore=0.0)
    one, other = (learn_table(method, settings, seed=3).values for method in METHODS)
    assert np.array_equal(one, other)
    exploring = TableSettings(episodes=200)
    one, other = (learn_table(method, exploring, seed=3).values for method in METHODS)
    assert not np.array_equal(one, other)


def test_sac_comes_to_choose_nearly_as_well_as_the_oracle(best: Figures, examination: Examination) -> None:
    """By a sixtieth of the decisions that it has in the table."""
    learned = examine(learn_sac(SacPlansSettings(episodes=500, walkers=100), seed=0).choose, examination)
    knows_nothing = examine(learn_sac(SacPlansSettings(episodes=0), seed=0).choose, examination)
    assert knows_nothing.reward < 0.9 * best.reward < learned.reward


def test_a_seed_gives_the_same_choices(examination: Examination) -> None:
    settings = SacPlansSettings(episodes=20, walkers=10, at_random=10, sac=CategoricalSettings(rate=1e-3))
    one, same, other = (learn_sac(settings, seed).choose(examination.situations) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_sac_sees_the_situation_between_bounds() -> None:
    """Also where more is in use than can be: less than a twentieth is never left."""
    corners = np.array([situation(0.0), situation(1.0, cpus=0.5), situation(0.5, cpus=MOST_IN_USE, memory=1.0)])
    seen = observed(corners)
    assert seen.shape == (3, FEATURES)
    assert seen[0].tolist() == [-1.0] * FEATURES
    assert seen[1].tolist() == [0.0, -1.0, -1.0, 1.0, 0.0, -1.0, -1.0]
    assert seen[2, -3:] == pytest.approx([np.log2(20) - 1, np.log2(20) - 1, -1.0])


def test_precision_and_f1_by_hand() -> None:
    """Plan 0: two of two right, one of three found missing; plan 1: one of two right, one of one found."""
    truth, chosen = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    precision, f1 = macro_scores(truth, chosen)
    assert precision == pytest.approx((1.0 + 0.5) / 2)
    assert f1 == pytest.approx((0.8 + 2 / 3) / 2)


def test_a_comparison_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """And learns anew only what learns otherwise."""
    asked: list[Any] = []

    def parallel_map(function: Callable[[Task], Answer], tasks: Sequence[Task], /) -> Iterator[Answer]:
        asked.extend(tasks)
        return map(function, tasks)

    rows = compare(QUICK, parallel_map, tmp_path, lambda *_: None)
    assert list(rows) == ["fixed", "sarsa", "q-learning", "sac", "oracle"]
    assert len(asked) == 3
    (tmp_path / next(path.name for path in tmp_path.iterdir() if path.name.startswith("sarsa"))).unlink()
    again = compare(QUICK, parallel_map, tmp_path, lambda *_: None)
    assert [run.learner for run in asked[3:]] == ["sarsa"]
    assert msgspec.json.encode(again) == msgspec.json.encode(rows)
    longer = msgspec.structs.replace(QUICK, sac=SacPlansSettings(episodes=20, walkers=10))
    compare(longer, parallel_map, tmp_path, lambda *_: None)
    assert [run.learner for run in asked[4:]] == ["sac"]
