"""A policy that answers in part: its network where it should, a heuristic elsewhere."""

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from rlalloc.errors import PolicyError
from rlalloc.heuristics import ALTERNATIVES, BASELINE_NAME
from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.objective.weights import features_of
from rlalloc.observation import FEATURES, WEIGHT_FEATURES
from rlalloc.policies import EVERYWHERE, MANIFEST_FILE, NOWHERE, PolicyStore, Routing, read_manifest
from rlalloc_agent.actor import Actor, actor_bytes
from rlalloc_agent.policy_routing import RoutedPolicy, pressure_of
from rlalloc_agent.served_policy import ServedPolicy, load_shipped


def observations(*pressures: float) -> np.ndarray:
    rows = np.random.default_rng(0).uniform(0.1, 0.9, size=(len(pressures), len(FEATURES))).astype(np.float32)
    rows[:, FEATURES.index("queued_gpus")] = np.log1p(pressures)
    rows[:, WEIGHT_FEATURES] = features_of(DEFAULT_WEIGHTS.array)
    return rows


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
    rows, actor = observations(0.0, 0.6, 3.0), shifting_actor()
    rows[:, FEATURES.index("urgency_counts")] = (0.0, 0.0, 1.0)
    assert pressure_of(rows) == pytest.approx([0.0, 0.6, 3.0], abs=1e-6)
    generator = torch.Generator()
    shares, log_probabilities = RoutedPolicy(actor, routing).decide(
        rows, sample=sample, generator=generator.manual_seed(1)
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


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_another_heuristic_than_the_base_can_be_served(name: str) -> None:
    """Its GPU share and urgency, CPUs and memory as the base has them; what is tried is tried around that."""
    rows, generator = observations(0.0, 0.6), torch.Generator()
    gpu, urgency = (FEATURES.index(f"{name}:{what}") for what in ("gpu_share", "urgency"))
    rows[:, gpu] = 0.9
    policy = RoutedPolicy(shifting_actor(), Routing(below=0.0, heuristic=name))
    shares, _ = policy.decide(rows, sample=False)
    assert shares == pytest.approx(np.stack((rows[:, gpu], rows[:, -3], rows[:, -2], rows[:, urgency]), axis=1))
    around = rows[:1].repeat(200, axis=0)
    tried, _ = policy.decide(around, sample=True, generator=generator.manual_seed(0))
    around[:, gpu] = 0.1
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


def test_a_manifest_of_before_the_rename_is_read(tmp_path: Path) -> None:
    """Versions up to 0.1 wrote ``answers`` for what is now ``routing``."""
    _, shipped = load_shipped()
    content = msgspec.to_builtins(msgspec.structs.replace(shipped, routing=Routing(at_least=0.5)))
    content["answers"] = content.pop("routing")
    (tmp_path / MANIFEST_FILE).write_bytes(msgspec.json.encode(content))
    assert read_manifest(tmp_path).routing == Routing(at_least=0.5)


def test_another_objective_is_for_the_network() -> None:
    rows, actor = observations(0.0, 0.6), shifting_actor()
    rows[0, WEIGHT_FEATURES] = features_of(Weights(energy=0.1).array)
    shares, _ = RoutedPolicy(actor, NOWHERE).decide(rows, sample=False)
    assert shares[0] == pytest.approx(actor.decide(rows[:1], sample=False)[0][0])
    assert shares[1] == pytest.approx(rows[1, -SHARES:])


def test_the_agent_serves_what_the_manifest_says(tmp_path: Path) -> None:
    """A version whose network answers nowhere: the heuristic's shares, under the version's name."""
    store = PolicyStore(tmp_path)
    _, shipped = load_shipped()
    manifest = msgspec.structs.replace(shipped, routing=NOWHERE)
    version = store.add({"actor.safetensors": actor_bytes(shifting_actor())}, manifest)
    store.promote(version)
    served = ServedPolicy(tmp_path, Counter())
    rows = observations(0.0, 2.0)
    assert served.version == version
    assert served.actor.decide(rows, sample=False)[0] == pytest.approx(rows[:, -SHARES:], abs=1e-7)


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
