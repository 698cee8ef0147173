"""A policy that answers in part: its network where it should, a heuristic elsewhere."""

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from rlalloc.errors import PolicyError
from rlalloc.heuristics import ALTERNATIVES, AS_REQUESTED_NAME, BASELINE_NAME
from rlalloc.job import SHARES, Shares
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.objective.weights import features_of
from rlalloc.observation import FEATURES, WEIGHT_FEATURES, EncodedBatch, FloatArray
from rlalloc.policy.policies import EVERYWHERE, MANIFEST_FILE, NOWHERE, PolicyStore, Routing, read_manifest
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc_agent.actor import Actor, actor_bytes
from rlalloc_agent.policy_routing import RoutedPolicy, pressure_of
from rlalloc_agent.served_policy import ServedPolicy, load_shipped
from tests.agent.running_server import questions

WEIGHTS = [FEATURES.index(name) for name in WEIGHT_FEATURES]


def under(*pressures: float) -> EncodedBatch:
    """Questions of a site with the default objective, under these pressures."""
    batch = questions(len(pressures), Shares(0.3, 0.5, 0.6, 0.7))
    batch.features[:, FEATURES.index("queued_gpus")] = np.log1p(pressures)
    batch.features[:, WEIGHTS] = features_of(DEFAULT_WEIGHTS.array)
    return batch


def answers_of(heuristic: str, batch: EncodedBatch) -> FloatArray:
    """What a heuristic answers, (jobs, SHARES)."""
    return batch.alternatives[:, batch.heuristics.index(heuristic)]


def shifting_actor() -> Actor:
    actor = Actor()
    with torch.no_grad():
        actor.residual.bias.add_(1.0)
    return actor


@pytest.mark.parametrize(
    ("routing", "learned"),
    [
        (EVERYWHERE, [True, True, True]),
        (NOWHERE, [False, False, False]),
        (Routing(at_least=0.5), [False, True, True]),
        (Routing(below=0.5), [True, False, False]),
        (Routing(at_least=0.5, below=2.0), [False, True, False]),
        (Routing(own_order=True), [True, True, False]),
        (Routing(at_least=0.5, own_order=True), [False, True, False]),
    ],
)
@pytest.mark.parametrize("sample", [False, True])
def test_each_row_is_answered_by_who_should(routing: Routing, learned: list[bool], sample: bool) -> None:
    """Of three decisions under more and more pressure; urgency counts at the last one."""
    batch, actor = under(0.0, 0.6, 3.0), shifting_actor()
    batch.features[:, FEATURES.index("urgency_counts")] = (0.0, 0.0, 1.0)
    rows = actor.inputs.rows(batch)
    assert pressure_of(batch) == pytest.approx([0.0, 0.6, 3.0], abs=1e-6)
    generator = torch.Generator()
    shares, log_probabilities = RoutedPolicy(actor, routing).decide(
        batch, sample=sample, generator=generator.manual_seed(1)
    )
    assert shares.shape == (3, SHARES)
    untrained = Actor()
    for row, by_network in enumerate(learned):
        one = torch.from_numpy(rows[row : row + 1])
        there = torch.from_numpy(shares[row : row + 1]).float()
        who = actor if by_network else untrained
        if not sample:
            expected = actor.decide(rows[row : row + 1], sample=False)[0] if by_network else rows[row, -SHARES:]
            assert shares[row] == pytest.approx(np.ravel(expected), abs=1e-6)
        with torch.no_grad():
            density = float(who.log_probability(one, there)[0])
        assert log_probabilities[row] == pytest.approx(density, abs=1e-3)


@pytest.mark.parametrize("name", [*ALTERNATIVES, AS_REQUESTED_NAME])
def test_another_heuristic_than_the_base_can_be_served(name: str) -> None:
    """All four of its shares; what is tried is tried around them."""
    batch, generator = under(0.0, 0.6), torch.Generator()
    policy = RoutedPolicy(shifting_actor(), Routing(below=0.0, heuristic=name))
    shares, _ = policy.decide(batch, sample=False)
    assert shares == pytest.approx(answers_of(name, batch))
    around = under(*[0.0] * 200)
    answers_of(name, around)[:, 0] = 0.9
    tried, _ = policy.decide(around, sample=True, generator=generator.manual_seed(0))
    answers_of(name, around)[:, 0] = 0.1
    lower, _ = policy.decide(around, sample=True, generator=generator.manual_seed(0))
    assert tried[:, 0].mean() > 0.6 > 0.4 > lower[:, 0].mean()


def test_a_heuristic_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="price-ef"):
        Routing(heuristic="fcfs")
    _, shipped = load_shipped()
    content = msgspec.to_builtins(shipped)
    content["routing"]["heuristic"] = "fcfs"
    (tmp_path / MANIFEST_FILE).write_bytes(msgspec.json.encode(content))
    with pytest.raises(PolicyError, match="'fcfs' cannot be served"):
        read_manifest(tmp_path)


def test_another_objective_is_for_the_network() -> None:
    batch, actor = under(0.0, 0.6), shifting_actor()
    batch.features[0, WEIGHTS] = features_of(Weights(energy=0.1).array)
    shares, _ = RoutedPolicy(actor, NOWHERE).decide(batch, sample=False)
    assert shares[0] == pytest.approx(actor.decide(actor.inputs.rows(batch)[:1], sample=False)[0][0])
    assert shares[1] == pytest.approx(answers_of(BASELINE_NAME, batch)[1])


def test_the_agent_serves_what_the_manifest_says(tmp_path: Path) -> None:
    """A version whose network answers nowhere: the heuristic's shares, under the version's name."""
    store = PolicyStore(tmp_path)
    _, shipped = load_shipped()
    manifest = msgspec.structs.replace(shipped, routing=NOWHERE, inputs=DEFAULT_INPUTS)
    version = store.add({"actor.safetensors": actor_bytes(shifting_actor())}, manifest)
    store.promote(version)
    served = ServedPolicy(tmp_path, Counter())
    batch = under(0.0, 2.0)
    assert served.version == version
    assert served.actor.decide(batch, sample=False)[0] == pytest.approx(answers_of(BASELINE_NAME, batch), abs=1e-7)


def test_in_words() -> None:
    assert EVERYWHERE.describe() == "everywhere"
    assert NOWHERE.describe() == f"nowhere: {BASELINE_NAME} answers"
    assert Routing(below=0.0, heuristic=(name := next(iter(ALTERNATIVES)))).describe() == f"nowhere: {name} answers"
    assert Routing(at_least=0.5).describe() == "where the pressure is at least 0.5"
    assert Routing(at_least=0.5, below=2.0).describe() == "where the pressure is at least 0.5 and below 2"
    assert Routing(own_order=True).describe() == "where the queue keeps its own order"
    assert (
        Routing(at_least=0.5, own_order=True).describe()
        == "where the pressure is at least 0.5 and the queue keeps its own order"
    )
