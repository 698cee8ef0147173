"""The actor starts at the heuristic, and its probabilities are true."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc.allocation import allocation_for
from rlalloc.errors import PolicyError
from rlalloc.heuristics import BASELINE
from rlalloc.job import SHARES, JobView, Shares
from rlalloc.observation import encode
from rlalloc.policy.policies import ACTOR_FILE, PolicyStore
from rlalloc.view import ClusterView, slowdown
from rlalloc_agent.actor import MEAN_CLIP, Actor, actor_bytes, actor_from_bytes, load_actor
from rlalloc_agent.served_policy import load_shipped
from tests.agent.running_server import actor_that_shifts_by, add_version, observations
from tests.core.strategies import SHAPE, cluster_views, job_views


@settings(deadline=None)
@given(job_views(), cluster_views())
def test_untrained_actor_decides_as_the_heuristic(job: JobView, view: ClusterView) -> None:
    """As long as its GPU counts are far enough apart for a share of 0.99 to mean 1."""
    actor = Actor()
    shares, _ = actor.decide(actor.inputs.row(encode(job, view))[None, :], sample=False)
    mine, base = (
        allocation_for(each, job.request, job.bounds, SHAPE, lambda size: slowdown(job.request, size))
        for each in (Shares(*shares[0].tolist()), BASELINE(job, view))
    )
    assert shares[0, 3] == pytest.approx(BASELINE(job, view).urgency, abs=0.011)
    assert mine.gpus == base.gpus
    assert mine.mem_mib_per_gpu == pytest.approx(base.mem_mib_per_gpu, rel=0.05, abs=1100)


def test_mean_is_the_heuristic_but_for_the_clip() -> None:
    shares, _ = Actor().decide(observations(4, Shares(1.0, 0.3, 0.0, 0.8)), sample=False)
    assert shares == pytest.approx(np.tile([(1 + MEAN_CLIP) / 2, 0.3, (1 - MEAN_CLIP) / 2, 0.8], (4, 1)), abs=1e-6)


def test_log_probability_is_that_of_torchs_transformed_distribution() -> None:
    actor = actor_that_shifts_by(0.3).double()
    rows = torch.from_numpy(observations(64, Shares(0.8, 0.5, 0.1, 0.6))).double()
    mean, std = actor(rows)
    reference = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, std),
        [
            torch.distributions.transforms.TanhTransform(),
            torch.distributions.transforms.AffineTransform(0.5, 0.5),
        ],
    )
    shares, log_probability = actor.sample(rows)
    torch.testing.assert_close(log_probability, reference.log_prob(shares).sum(dim=-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(log_probability, actor.log_probability(rows, shares), rtol=1e-6, atol=1e-6)


def test_density_integrates_to_one() -> None:
    """Over the unit cube of shares, summed on a grid."""
    actor = Actor().double()
    row = torch.from_numpy(observations(1, Shares(0.6, 0.5, 0.4, 0.5))).double()
    axis = (torch.arange(24, dtype=torch.float64) + 0.5) / 24
    grid = torch.cartesian_prod(*(axis for _ in range(SHARES)))
    with torch.no_grad():
        density = actor.log_probability(row.expand(len(grid), -1), grid).exp()
    assert float(density.mean()) == pytest.approx(1.0, abs=1e-3)


def test_log_probability_stays_finite_at_the_edges() -> None:
    actor = Actor()
    rows = torch.from_numpy(observations(2))
    log_probability = actor.log_probability(rows, torch.tensor([[0.0] * SHARES, [1.0] * SHARES]))
    assert bool(log_probability.isfinite().all())


@settings(deadline=None)
@given(st.integers(0, 2**31), st.floats(-4, 4))
def test_samples_are_shares(seed: int, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    shares, log_probability = actor_that_shifts_by(shift).decide(observations(16), sample=True, generator=generator)
    assert ((shares >= 0) & (shares <= 1)).all()
    assert np.isfinite(log_probability).all()


def test_the_same_seed_draws_the_same_shares() -> None:
    one, other = (
        actor_that_shifts_by(0.0).decide(observations(8), sample=True, generator=torch.Generator().manual_seed(3))[0]
        for _ in range(2)
    )
    assert one.tolist() == other.tolist()


def test_save_and_load_are_exact(tmp_path: Path) -> None:
    actor = actor_that_shifts_by(0.7)
    policies = PolicyStore(tmp_path)
    loaded, manifest = load_actor(policies.path(add_version(policies, actor)))
    assert manifest.version == "v000001"
    for name, parameter in actor.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], parameter, rtol=0, atol=0)


def test_a_file_that_differs_from_its_manifest_is_refused(tmp_path: Path) -> None:
    policies = PolicyStore(tmp_path)
    folder = policies.path(add_version(policies, Actor()))
    content = bytearray((folder / ACTOR_FILE).read_bytes())
    content[-1] ^= 1
    (folder / ACTOR_FILE).write_bytes(content)
    with pytest.raises(PolicyError, match="promote another version"):
        load_actor(folder)


def test_bytes_that_are_no_actor_are_refused() -> None:
    for content in (b"", b"\x80\x04.", actor_bytes(Actor(hidden=(8,)))):
        with pytest.raises(PolicyError, match="is no actor"):
            actor_from_bytes(content, (128, 128))


def test_weights_that_are_not_finite_are_refused() -> None:
    with pytest.raises(PolicyError, match="not finite"):
        actor_from_bytes(actor_bytes(actor_that_shifts_by(float("nan"))), (128, 128))


def test_the_shipped_policy_loads_and_is_small() -> None:
    actor, manifest = load_shipped()
    assert manifest.version.startswith("shipped")
    assert manifest.inputs == actor.inputs.names
    assert not actor.inputs.missing()
    assert len(actor_bytes(actor)) < 400_000
