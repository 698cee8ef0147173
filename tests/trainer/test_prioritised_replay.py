"""What is drawn follows the priorities, weights mend it, and demonstrations keep their share."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import safetensors.numpy
import torch

from rlalloc_trainer.sac.prioritised_replay import Drawn, PrioritisedReplay, PrioritySettings
from rlalloc_trainer.sac.replay_buffer import Transitions, single_decisions

EVEN_CHANCE = 1e-3
"""Below this, a chi-square test says that the draws do not follow the priorities. Seeds are fixed."""


def numbered(rows: int, first: int = 0) -> Transitions:
    """Transitions that tell their number by reward and observation."""
    numbers = np.arange(first, first + rows, dtype=np.float32)
    return single_decisions(numbers[:, None], np.zeros((rows, 3), np.float32), numbers)


def replay_of(
    rows: int, settings: PrioritySettings, demonstrations: int = 0, capacity: int | None = None
) -> PrioritisedReplay:
    """``rows`` from 0 on, demonstrations from 1000 on."""
    shown = numbered(demonstrations, 1000) if demonstrations else None
    replay = PrioritisedReplay(capacity or max(1, rows), 1, 3, settings, shown)
    if rows:
        replay.add(numbered(rows))
    return replay


def drawn_rows(replay: PrioritisedReplay, batch: int, batches: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.concatenate([replay.sample(batch, generator).rows for _ in range(batches)])


def expected_counts(errors: np.ndarray, settings: PrioritySettings, draws: int) -> np.ndarray:
    priorities = (np.abs(errors) + settings.epsilon) ** settings.alpha
    return np.asarray(draws * priorities / priorities.sum())


def chance(rows: np.ndarray, expected: np.ndarray) -> float:
    """The p-value of Pearson's chi-square test."""
    statistic = ((np.bincount(rows, minlength=len(expected)) - expected) ** 2 / expected).sum()
    freedom = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_draws_follow_the_errors(alpha: float) -> None:
    """One at a time, for draws of one stratified batch are more even than independent ones."""
    settings = PrioritySettings(alpha=alpha)
    replay, errors = replay_of(30, settings), np.random.default_rng(1).normal(0.0, 3.0, 30)
    replay.prioritise(np.arange(30), errors)
    rows = drawn_rows(replay, 1, 20_000)
    assert chance(rows, expected_counts(errors, settings, 20_000)) > EVEN_CHANCE


def test_draws_follow_errors_that_changed() -> None:
    settings = PrioritySettings()
    replay, generator = replay_of(30, settings), np.random.default_rng(1)
    errors = np.zeros(30)
    for _ in range(50):
        rows = generator.integers(30, size=8)
        errors[rows] = generator.exponential(2.0, 30)[rows]
        replay.prioritise(rows, errors[rows])
    untouched = np.flatnonzero(errors == 0.0)
    assert len(untouched) == 0
    before = expected_counts(np.full(30, 1.0), settings, 20_000)
    rows = drawn_rows(replay, 1, 20_000)
    assert chance(rows, expected_counts(errors, settings, 20_000)) > EVEN_CHANCE
    assert chance(rows, before) < 1e-9  # the test could tell


def test_a_batch_has_one_draw_from_each_slice() -> None:
    """A row with more than two slices' worth is in every batch, and how often varies by less than two."""
    replay = replay_of(10, PrioritySettings(alpha=1.0))
    errors = np.array([50.0, *[1.0] * 9])
    replay.prioritise(np.arange(10), errors)
    generator = np.random.default_rng(0)
    counts = [int((replay.sample(32, generator).rows == 0).sum()) for _ in range(200)]
    expected = 32 * 50 / 59
    assert set(counts) == {int(expected), int(expected) + 1}
    assert np.mean(counts) == pytest.approx(expected, abs=0.1)


def weighted_mean(drawn: Drawn, values: np.ndarray) -> float:
    weights = drawn.weights.astype(np.float64)
    return float((weights * values[drawn.rows]).sum() / weights.sum())


@pytest.mark.parametrize("changed", [False, True])
def test_weights_make_the_mean_that_of_all(*, changed: bool) -> None:
    """The values rise with the errors, so without weights the mean is far off."""
    settings = PrioritySettings(alpha=1.0, beta=1.0)
    replay, generator = replay_of(200, settings), np.random.default_rng(3)
    errors = generator.exponential(1.0, 200) + 0.05
    replay.prioritise(np.arange(200), errors[::-1] if changed else errors)
    if changed:
        replay.prioritise(np.arange(200), errors)
    batches = [replay.sample(4096, generator) for _ in range(20)]
    assert np.mean([weighted_mean(drawn, errors) for drawn in batches]) == pytest.approx(errors.mean(), rel=0.02)
    assert np.mean([errors[drawn.rows].mean() for drawn in batches]) > 1.5 * errors.mean()


def test_weights_are_those_of_schaul_et_al() -> None:
    settings = PrioritySettings(alpha=0.7, beta=0.5)
    replay, errors = replay_of(20, settings), np.linspace(-2.0, 3.0, 20)
    replay.prioritise(np.arange(20), errors)
    drawn = replay.sample(64, np.random.default_rng(0))
    probabilities = expected_counts(errors, settings, 1)
    weights = (20 * probabilities[drawn.rows]) ** -0.5
    assert drawn.weights == pytest.approx(weights / weights.max(), rel=1e-5)
    assert drawn.weights.max() == 1.0


def test_beta_goes_to_one_and_stays() -> None:
    replay = replay_of(5, PrioritySettings(beta=0.4, batches_to_one=4))
    generator, betas = np.random.default_rng(0), []
    for _ in range(6):
        betas.append(replay.beta)
        replay.sample(2, generator)
    assert betas == pytest.approx([0.4, 0.55, 0.7, 0.85, 1.0, 1.0])


def test_what_is_new_is_drawn_as_often_as_the_most_surprising() -> None:
    settings = PrioritySettings()
    replay = replay_of(10, settings, capacity=20)
    errors = np.full(10, 0.1)
    errors[4] = 5.0
    replay.prioritise(np.arange(10), errors)
    replay.add(numbered(10, 10))
    rows = drawn_rows(replay, 1, 20_000)
    assert chance(rows, expected_counts(np.append(errors, np.full(10, 5.0)), settings, 20_000)) > EVEN_CHANCE


def test_demonstrations_keep_their_share_however_much_is_experienced() -> None:
    """And whatever their errors: neither new experience nor small priorities drown them."""
    replay = replay_of(0, PrioritySettings(expert_share=0.25), demonstrations=40, capacity=100)
    generator = np.random.default_rng(0)
    for number in range(30):
        replay.add(numbered(50, 50 * number))
        drawn = replay.sample(64, generator)
        shown = drawn.transitions.reward[drawn.expert]
        assert drawn.expert.sum() == 16
        replay.prioritise(drawn.rows, np.where(drawn.expert, 1e-9, 100.0))
    assert len(replay) == 140
    assert set(drawn_rows(replay, 64, 300)) >= set(range(100, 140))
    assert (shown >= 1000).all()


def test_draws_of_demonstrations_follow_their_errors() -> None:
    settings = PrioritySettings(expert_share=0.5)
    replay, errors = replay_of(10, settings, demonstrations=10), np.linspace(0.1, 4.0, 10)
    replay.prioritise(np.arange(10, 20), errors)
    rows = drawn_rows(replay, 2, 10_000)
    assert chance(rows[rows >= 10] - 10, expected_counts(errors, settings, 10_000)) > EVEN_CHANCE


def test_before_any_experience_all_are_demonstrations() -> None:
    drawn = replay_of(0, PrioritySettings(expert_share=0.1), demonstrations=5).sample(32, np.random.default_rng(0))
    assert drawn.expert.all()
    assert len(drawn.transitions) == 32


def test_rows_lead_to_their_transitions() -> None:
    replay = replay_of(30, PrioritySettings(expert_share=0.3), demonstrations=7, capacity=20)
    drawn = replay.sample(200, np.random.default_rng(0))
    numbers = drawn.transitions.reward
    assert (numbers[drawn.expert] == drawn.rows[drawn.expert] - 20 + 1000).all()
    own = drawn.rows[~drawn.expert]
    assert (numbers[~drawn.expert] == np.where(own < 10, own + 20, own)).all()  # 20 to 29 took the rows of 0 to 9


def test_saved_and_restored_it_goes_on_exactly(tmp_path: Path) -> None:
    settings = PrioritySettings(batches_to_one=100)

    def step(replay: PrioritisedReplay, generator: np.random.Generator, number: int) -> Drawn:
        replay.add(numbered(3, 3 * number))
        drawn = replay.sample(16, generator)
        replay.prioritise(drawn.rows, generator.normal(0.0, 2.0, 16))
        return drawn

    replay, generator = replay_of(40, settings, demonstrations=9, capacity=50), np.random.default_rng(0)
    for number in range(20):
        step(replay, generator, number)
    safetensors.numpy.save_file(dict(replay.state()), tmp_path / "replay.safetensors")
    restored = replay_of(50, settings, demonstrations=9, capacity=50)
    restored.restore(safetensors.numpy.load_file(tmp_path / "replay.safetensors"))
    one, other = np.random.default_rng(7), np.random.default_rng(7)
    for number in range(20, 60):
        first, second = step(replay, one, number), step(restored, other, number)
        assert (first.rows == second.rows).all()
        assert (first.weights == second.weights).all()
        assert (first.transitions.reward == second.transitions.reward).all()


def test_a_million_transitions_in_bounded_memory() -> None:
    """Memory is taken at the start: 356 bytes a transition of 40 features, whatever is added."""
    replay = PrioritisedReplay(1_000_000, 40, 3, PrioritySettings())
    before = replay.nbytes
    assert before / 1_000_000 < 360
    replay.add(single_decisions(*(np.zeros(shape, np.float32) for shape in ((1000, 40), (1000, 3), (1000,)))))
    replay.prioritise(replay.sample(256, np.random.default_rng(0)).rows, np.ones(256))
    assert replay.nbytes == before


def test_an_empty_buffer_says_so() -> None:
    with pytest.raises(ValueError, match="empty"):
        replay_of(0, PrioritySettings()).sample(1, np.random.default_rng(0))


def test_errors_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="look for NaN"):
        replay_of(3, PrioritySettings()).prioritise(np.arange(3), np.array([1.0, np.nan, 1.0]))


@pytest.mark.parametrize("wrong", [{"alpha": -0.1}, {"beta": 1.1}, {"epsilon": 0.0}, {"expert_share": 2.0}])
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        msgspec.structs.replace(PrioritySettings(), **wrong)
