"""A policy that answers in part: its network where it should, a heuristic elsewhere."""

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from rlalloc.errors import PolicyError
from rlalloc.heuristics import BASE_NAME, STAND_INS
from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.objective.weights import features_of
from rlalloc.observation import FEATURES, WEIGHT_FEATURES
from rlalloc.policies import EVERYWHERE, MANIFEST_FILE, NOWHERE, Answering, PolicyStore, read_manifest
from rlalloc_agent.actor import Actor, actor_bytes
from rlalloc_agent.answering import PartlyLearned, pressure_of
from rlalloc_agent.serving import ServedPolicy, load_shipped


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
    ("answers", "learned"),
    [
        (EVERYWHERE, [True, True, True]),
        (NOWHERE, [False, False, False]),
        (Answering(at_least=0.5), [False, True, True]),
        (Answering(below=0.5), [True, False, False]),
        (Answering(at_least=0.5, below=2.0), [False, True, False]),
        (Answering(own_order=True), [True, True, False]),
        (Answering(at_least=0.5, own_order=True), [False, True, False]),
    ],
)
@pytest.mark.parametrize("sample", [False, True])
def test_each_row_is_answered_by_who_should(answers: Answering, learned: list[bool], sample: bool) -> None:
    """Of three decisions under more and more pressure; urgency counts at the last one."""
    rows, actor = observations(0.0, 0.6, 3.0), shifting_actor()
    rows[:, FEATURES.index("urgency_counts")] = (0.0, 0.0, 1.0)
    assert pressure_of(rows) == pytest.approx([0.0, 0.6, 3.0], abs=1e-6)
    generator = torch.Generator()
    shares, log_probabilities = PartlyLearned(actor, answers).decide(
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


@pytest.mark.parametrize("name", STAND_INS)
def test_another_heuristic_than_the_base_can_be_served(name: str) -> None:
    """Its GPU share and urgency, CPUs and memory as the base has them; what is tried is tried around that."""
    rows, generator = observations(0.0, 0.6), torch.Generator()
    gpu, urgency = (FEATURES.index(f"{name}:{what}") for what in ("gpu_share", "urgency"))
    rows[:, gpu] = 0.9
    policy = PartlyLearned(shifting_actor(), Answering(below=0.0, heuristic=name))
    shares, _ = policy.decide(rows, sample=False)
    assert shares == pytest.approx(np.stack((rows[:, gpu], rows[:, -3], rows[:, -2], rows[:, urgency]), axis=1))
    around = rows[:1].repeat(200, axis=0)
    tried, _ = policy.decide(around, sample=True, generator=generator.manual_seed(0))
    around[:, gpu] = 0.1
    lower, _ = policy.decide(around, sample=True, generator=generator.manual_seed(0))
    assert tried[:, 0].mean() > 0.6 > 0.4 > lower[:, 0].mean()


def test_a_heuristic_that_no_observation_tells_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="price-ef"):
        Answering(heuristic="fcfs")
    _, shipped = load_shipped()
    content = msgspec.to_builtins(shipped)
    content["answers"]["heuristic"] = "fcfs"
    (tmp_path / MANIFEST_FILE).write_bytes(msgspec.json.encode(content))
    with pytest.raises(PolicyError, match="'fcfs' cannot be served"):
        read_manifest(tmp_path)


def test_another_objective_is_for_the_network() -> None:
    rows, actor = observations(0.0, 0.6), shifting_actor()
    rows[0, WEIGHT_FEATURES] = features_of(Weights(energy=0.1).array)
    shares, _ = PartlyLearned(actor, NOWHERE).decide(rows, sample=False)
    assert shares[0] == pytest.approx(actor.decide(rows[:1], sample=False)[0][0])
    assert shares[1] == pytest.approx(rows[1, -SHARES:])


def test_the_agent_serves_what_the_manifest_says(tmp_path: Path) -> None:
    """A version whose network answers nowhere: the heuristic's shares, under the version's name."""
    store = PolicyStore(tmp_path)
    _, shipped = load_shipped()
    manifest = msgspec.structs.replace(shipped, answers=NOWHERE)
    version = store.add({"actor.safetensors": actor_bytes(shifting_actor())}, manifest)
    store.promote(version)
    served = ServedPolicy(tmp_path, Counter())
    rows = observations(0.0, 2.0)
    assert served.version == version
    assert served.actor.decide(rows, sample=False)[0] == pytest.approx(rows[:, -SHARES:], abs=1e-7)


def test_in_words() -> None:
    assert EVERYWHERE.describe() == "everywhere"
    assert NOWHERE.describe() == f"nowhere: {BASE_NAME} answers"
    assert Answering(below=0.0, heuristic=(name := next(iter(STAND_INS)))).describe() == f"nowhere: {name} answers"
    assert Answering(at_least=0.5).describe() == "where the pressure is at least 0.5"
    assert Answering(at_least=0.5, below=2.0).describe() == "where the pressure is at least 0.5 and below 2"
    assert Answering(own_order=True).describe() == "where the queue keeps its own order"
    assert (
        Answering(at_least=0.5, own_order=True).describe()
        == "where the pressure is at least 0.5 and the queue keeps its own order"
    )
