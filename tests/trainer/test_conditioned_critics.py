"""Critics that are linear in the weights of the objective."""

import numpy as np
import torch

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS, PolicyInputs
from rlalloc_trainer.advantages.weight_relabelling import conditioned_on, draw_weights
from rlalloc_trainer.sac.conditioned_critics import COLUMNS, WeightConditionedCritics, term_importance
from tests.trainer.importance import importance

INPUTS = PolicyInputs()
SITES = (DEFAULT_WEIGHTS, Weights(gpu_held=0.5), Weights(jct=0.01, energy=1, out_of_memory=1, timeout=0))


def observations(site: Weights, rows: int = 16) -> torch.Tensor:
    generator = np.random.default_rng(0)
    return torch.from_numpy(
        conditioned_on(generator.random((rows, len(INPUTS)), dtype=np.float32), site.array, INPUTS)
    )


def new_critics(members: int = 2) -> WeightConditionedCritics:
    torch.manual_seed(0)
    return WeightConditionedCritics(INPUTS, SHARES, (16, 16), members)


def test_the_importance_of_terms_is_read_from_the_observation() -> None:
    weights = draw_weights(500, np.random.default_rng(0))
    rows = torch.from_numpy(conditioned_on(np.zeros((500, len(INPUTS)), dtype=np.float32), weights, INPUTS))
    # What is below a thousandth of the largest weight is not shown.
    np.testing.assert_allclose(term_importance(rows, INPUTS)[:, :-1], importance(weights), atol=0.05)
    for site in SITES:
        np.testing.assert_allclose(
            term_importance(observations(site), INPUTS)[0, :-1], importance(site.array), atol=1e-5
        )
        assert term_importance(observations(site), INPUTS)[0, -1] == 1


def test_inputs_may_stand_anywhere() -> None:
    """A network of another order of inputs, without the weight of one term, learns the same way."""
    others = [name for name in DEFAULT_INPUTS[::-1] if name not in ("weight_energy", *DEFAULT_INPUTS[-SHARES:])]
    inputs = PolicyInputs((*others, *DEFAULT_INPUTS[-SHARES:]))
    rows = torch.from_numpy(
        conditioned_on(np.zeros((2, len(inputs)), dtype=np.float32), Weights(gpu_held=0.5).array, inputs)
    )
    expected = importance(Weights(gpu_held=0.5).array)
    np.testing.assert_allclose(term_importance(rows, inputs)[0, :-1], expected, atol=1e-5)
    torch.manual_seed(0)
    critics = WeightConditionedCritics(inputs, SHARES, (16, 16))
    assert critics.advantage_by_term(rows, torch.rand(2, SHARES)).shape == (2, 2, COLUMNS)
    other = torch.from_numpy(conditioned_on(rows.numpy(), Weights().array, inputs))
    assert torch.equal(
        critics.advantage_by_term(rows, rows[:, :SHARES]), critics.advantage_by_term(other, rows[:, :SHARES])
    )


def test_a_network_without_any_weight_divides_by_nothing() -> None:
    inputs = PolicyInputs(DEFAULT_INPUTS[-SHARES:])
    assert term_importance(torch.rand(2, SHARES), inputs)[:, :-1].abs().max() == 0


def test_the_value_is_that_of_the_terms_by_their_importance() -> None:
    """So what was learned of a term under some weights is known under all others."""
    critics, shares = new_critics(), drawn_shares()
    by_term = critics.advantage_by_term(observations(SITES[0]), shares)
    for site in SITES:
        rows = observations(site)
        assert torch.equal(critics.advantage_by_term(rows, shares), by_term)
        counts = torch.from_numpy(np.append(importance(site.array), 1.0)).float()
        assert torch.allclose(critics(rows, shares), by_term @ counts, atol=1e-5)


def test_the_heuristic_has_no_advantage_over_itself() -> None:
    rows = observations(DEFAULT_WEIGHTS)
    assert new_critics().advantage_by_term(rows, rows[:, -SHARES:]).abs().max() < 1e-6
    assert new_critics().advantage_by_term(rows, 1 - rows[:, -SHARES:]).abs().max() > 1e-4


def test_a_term_is_learned_from_what_is_known_of_it() -> None:
    """Other terms of the row may be unknown. Rows of sites that do not care for the term teach nothing."""
    frugal, shares = observations(Weights(jct=0, energy=1, out_of_memory=0, timeout=0)), drawn_shares()
    energy = TERM_NAMES.index("energy")
    target = torch.full((16, COLUMNS), torch.nan)
    target[:, energy] = shares[:, 0] - frugal[:, -SHARES]
    critics = new_critics()
    taught(critics, frugal, shares, target)
    assert all(bool(parameter.isfinite().all()) for parameter in critics.parameters())
    assert torch.allclose(critics.advantage_by_term(frugal, shares)[..., energy], target[:, energy], atol=0.1)
    assert not critics.squared_errors(observations(DEFAULT_WEIGHTS), shares, target).any()


def test_an_error_counts_as_much_as_the_site_cares() -> None:
    critics, shares = new_critics(), drawn_shares()
    for site in SITES:
        rows = observations(site)
        by_term = critics.advantage_by_term(rows, shares)[0].detach()
        for column, cares in enumerate([*importance(site.array), 1.0]):
            target = by_term.clone()
            target[:, column] += 2.0
            wrong = critics.squared_errors(rows, shares, target)[0]
            assert torch.allclose(wrong, torch.full((16,), 4.0 * cares**2), atol=1e-4)


def test_leaving_the_heuristic_has_its_price_wherever_one_goes() -> None:
    """All shares are equally bad; only the heuristic's are better, and no row says so."""
    rows, shares = observations(DEFAULT_WEIGHTS), drawn_shares()
    target = torch.full((16, COLUMNS), torch.nan)
    target[:, TERM_NAMES.index("jct")] = -0.5
    critics = new_critics()
    taught(critics, rows, shares, target)
    assert critics(rows, shares).mean() < -0.4
    assert critics(rows, rows[:, -SHARES:]).abs().max() < 1e-6


def drawn_shares() -> torch.Tensor:
    return torch.rand(16, SHARES, generator=torch.Generator().manual_seed(0))


def taught(critics: WeightConditionedCritics, rows: torch.Tensor, shares: torch.Tensor, target: torch.Tensor) -> None:
    optimizer = torch.optim.Adam(critics.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        torch.autograd.backward(critics.squared_errors(rows, shares, target).mean())
        optimizer.step()
