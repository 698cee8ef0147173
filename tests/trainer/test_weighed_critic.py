"""Critics that are linear in the weights of the objective."""

import numpy as np
import torch

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.observation import FEATURES
from rlalloc_trainer.gain_scale import importance
from rlalloc_trainer.hindsight import draw_weights, told
from rlalloc_trainer.weighed_critic import WeighedCritics, importance_told

SITES = (DEFAULT_WEIGHTS, Weights(gpu_held=0.5), Weights(jct=0.01, energy=1, out_of_memory=1, timeout=0))


def observations(site: Weights, rows: int = 16) -> torch.Tensor:
    generator = np.random.default_rng(0)
    return torch.from_numpy(told(generator.random((rows, len(FEATURES)), dtype=np.float32), site.array))


def test_the_importance_of_terms_is_read_from_the_observation() -> None:
    weights = draw_weights(500, np.random.default_rng(0))
    rows = told(np.zeros((500, len(FEATURES)), dtype=np.float32), weights)
    # What is below a thousandth of the largest weight is not told.
    np.testing.assert_allclose(importance_told(torch.from_numpy(rows)), importance(weights), atol=0.05)
    for site in SITES:
        np.testing.assert_allclose(importance_told(observations(site))[0], importance(site.array), atol=1e-5)


def test_the_gain_is_linear_in_the_importance_of_terms() -> None:
    """And so known for a site whose weights were never seen, once it is for others."""
    critics = WeighedCritics(len(FEATURES), SHARES, (16, 16), members=2)
    shares = torch.rand(16, SHARES, generator=torch.Generator().manual_seed(0))
    gains = [critics.gain(observations(site), shares).detach().numpy() for site in SITES]
    parts = np.stack([importance(site.array) for site in SITES])
    between = Weights.of_array(np.maximum(0.0, parts.sum(axis=0)) / _typical())
    direction = np.linalg.lstsq(parts.T, importance(between.array), rcond=None)[0]
    mixed = critics.gain(observations(between), shares).detach().numpy()
    np.testing.assert_allclose(mixed, sum(d * g for d, g in zip(direction, gains, strict=True)), atol=1e-5)


def test_the_gain_is_nothing_at_the_heuristic() -> None:
    critics = WeighedCritics(len(FEATURES), SHARES, (16, 16))
    rows = observations(DEFAULT_WEIGHTS)
    assert critics.gain(rows, rows[:, -SHARES:]).abs().max() < 1e-6
    assert critics.gain(rows, 1 - rows[:, -SHARES:]).abs().max() > 1e-4
    value, gain = critics(rows, rows[:, -SHARES:]), critics.value(rows)
    assert torch.allclose(value, gain)


def _typical() -> np.ndarray:
    return importance(np.ones(len(DEFAULT_WEIGHTS.array)))
