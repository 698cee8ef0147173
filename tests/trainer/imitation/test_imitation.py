"""Demonstrations are what experts do, cloning leads to them, and the Q-filter decides how long."""

from collections.abc import Iterator
from pathlib import Path

import gymnasium
import msgspec
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rlalloc.errors import PolicyError
from rlalloc.heuristics.named import policy_named
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.gym_environment import ClusterEnvironment
from rlalloc_simulator.training_workloads import training_workload
from rlalloc_trainer.commands.train_commands import app
from rlalloc_trainer.imitation.cloning import CloningTerm, WarmStart, clone
from rlalloc_trainer.imitation.demonstrations import (
    Recorded,
    read_demonstrations,
    record,
    write_demonstrations,
)
from rlalloc_trainer.imitation.expert_actor import cluster_of
from rlalloc_trainer.sac.environment_training import OnlineSettings, OnlineTraining
from rlalloc_trainer.sac.plain_actor import PlainActor
from rlalloc_trainer.sac.prioritised_replay import PrioritisedReplay, PrioritySettings
from rlalloc_trainer.sac.replay_buffer import Replay, Transitions, single_decisions
from rlalloc_trainer.sac.soft_actor_critic import Losses, Sac, plain_settings

WIDTHS = (32, 32)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The networks are small: on a busy machine threads wait for each other longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_demonstration_is_what_the_expert_does() -> None:
    """The same workload, driven by the same expert outside the environment, ends the same."""
    environment = ClusterEnvironment(jobs=12)
    shown = record(environment, Recorded(experts=("sjf",), workloads=1, first=7)).transitions
    site, jobs = training_workload(7, 12)
    simulator = Simulator(site, table_of(jobs, site))
    drive(simulator, jobs, policy_named("sjf"))
    assert environment.simulator.digest() == simulator.digest()
    assert len(shown) >= len(jobs) > 1
    assert shown.discount.tolist() == pytest.approx([0.99] * (len(shown) - 1) + [0.0])
    assert (shown.next_observation[:-1] == shown.observation[1:]).all()


def test_experts_take_turns_by_workload() -> None:
    environment = ClusterEnvironment(jobs=5)
    both = record(environment, Recorded(experts=("smallest", "largest"), workloads=2)).transitions
    first = int(np.flatnonzero(both.discount == 0.0)[0]) + 1
    assert (both.shares[:first, 0] == 0.0).all()
    assert (both.shares[first:, 0] == 1.0).all()
    assert (both.discount == 0.0).sum() == 2


def test_demonstrations_come_back_from_a_file(tmp_path: Path) -> None:
    recorded = Recorded(experts=("fcfs", "round-robin"), workloads=2, look_ahead=3)
    shown = record(ClusterEnvironment(jobs=6), recorded)
    write_demonstrations(shown, tmp_path / "shown.safetensors")
    read = read_demonstrations(tmp_path / "shown.safetensors")
    assert read.recorded == recorded
    for name in Transitions.__struct_fields__:
        assert (getattr(read.transitions, name) == getattr(shown.transitions, name)).all()


def test_files_that_are_no_demonstrations_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "shown.safetensors"
    path.write_bytes(b"something else")
    with pytest.raises(PolicyError, match="holds no demonstrations"):
        read_demonstrations(path)
    shown = record(ClusterEnvironment(jobs=3), Recorded(experts=("sjf",), workloads=1))
    older = msgspec.structs.replace(shown, recorded=msgspec.structs.replace(shown.recorded, inputs=("waited",)))
    write_demonstrations(older, path)
    with pytest.raises(PolicyError, match="other features or heuristics"):
        read_demonstrations(path)


def test_unknown_experts_and_environments_are_named() -> None:
    with pytest.raises(PolicyError, match="no policy 'nobody'"):
        record(ClusterEnvironment(jobs=3), Recorded(experts=("nobody",), workloads=1))
    with pytest.raises(TypeError, match="Cluster-v0"):
        cluster_of(gymnasium.make("Pendulum-v1"))


def test_the_command_records_what_an_expert_does(tmp_path: Path) -> None:
    path = tmp_path / "shown.safetensors"
    arguments = [
        "demonstrate",
        "--expert",
        "sjf",
        "--expert",
        "fcfs",
        "--workloads",
        "2",
        "--jobs",
        "4",
        "-o",
        str(path),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "decisions, mean return -" in result.stdout
    assert read_demonstrations(path).recorded.experts == ("sjf", "fcfs")
    refused = CliRunner().invoke(app, ["demonstrate", "--expert", "nobody", "-o", str(path)])
    assert refused.exit_code == 1
    assert "no policy 'nobody'" in refused.stderr


def demonstrated(rows: int, seed: int, actions: int = 3) -> Transitions:
    """An expert that answers to the first feature; its reward is 1."""
    observation = np.random.default_rng(seed).uniform(-1, 1, (rows, 4)).astype(np.float32)
    shares = np.repeat(0.5 + 0.4 * observation[:, :1], actions, axis=1)
    return single_decisions(observation, shares, np.ones(rows, np.float32))


def plain_actor(seed: int = 0) -> PlainActor:
    torch.manual_seed(seed)
    return PlainActor(4, 3, WIDTHS)


def test_cloning_leads_to_the_expert_on_what_it_never_saw() -> None:
    actor, held_out = plain_actor(), demonstrated(300, 2)
    clone(actor, demonstrated(1000, 1), WarmStart(steps=400, rate=3e-3), np.random.default_rng(0))
    shares, _ = actor.decide(held_out.observation, sample=False)
    assert np.abs(shares - held_out.shares).max() < 0.06


def test_cloning_leaves_exploration() -> None:
    actor, rows = plain_actor(), torch.from_numpy(demonstrated(100, 1).observation)
    before = actor(rows)[1].mean()
    clone(actor, demonstrated(1000, 1), WarmStart(steps=400, rate=3e-3), np.random.default_rng(0))
    assert actor(rows)[1].mean() > 0.5 * before


def test_the_cloning_term_fades() -> None:
    term = CloningTerm(weight=2.0, fades_after=100)
    rows = np.array([True, False])
    assert [term.payments(rows, step) is None for step in (0, 99, 100, 500)] == [False, False, True, True]
    halfway = term.payments(rows, 50)
    assert halfway is not None
    assert halfway.tolist() == [1.0, 0.0]
    assert term.payments(np.array([False]), 0) is None


def distance_after_training(value_of_expert: float, payment: float) -> float:
    """Train on rows whose reward is ``value_of_expert`` at the expert's shares, 0 elsewhere, on demonstrated ones.

    The actor would not move otherwise: its critics have learned before, and its temperature is next to nothing.
    """
    settings = msgspec.structs.replace(
        plain_settings(3), temperature=1e-6, temperature_rate=0.0, critic_rate=3e-3, actor_rate=3e-3, actor_after=150
    )
    sac = Sac(plain_actor(), settings, seed=0)
    shown, generator = demonstrated(128, 1), np.random.default_rng(0)
    distances = None
    for _ in range(250):
        tried = generator.random((128, 3), dtype=np.float32)
        observation = np.concatenate((shown.observation, shown.observation))
        shares = np.concatenate((shown.shares, tried))
        off = ((tried - shown.shares) ** 2).sum(axis=1)
        reward = np.concatenate((np.full(128, value_of_expert), value_of_expert * (1.0 - off))).astype(np.float32)
        cloning = np.concatenate((np.full(128, payment), np.zeros(128))).astype(np.float32)
        sac.update(single_decisions(observation, shares, reward), cloning=cloning if payment else None)
    distances, _ = sac.actor.decide(shown.observation, sample=False)
    return float(((distances - shown.shares) ** 2).sum(axis=1).mean())


def test_the_q_filter_follows_a_good_expert_and_leaves_a_bad_one() -> None:
    """A bad expert's term changes nothing at all, for its shares are never valued higher."""
    good, bad = distance_after_training(1.0, 1.0), distance_after_training(-1.0, 1.0)
    assert good < 0.02
    assert bad > 0.3


def shown_training(settings: OnlineSettings, actor_after: int = 0) -> OnlineTraining[PlainActor]:
    """Training on short workloads with two demonstrated ones in a prioritised replay, and a cloning term."""
    shown = record(ClusterEnvironment(jobs=8), Recorded(experts=("price-ef",), workloads=2)).transitions
    features, actions = shown.observation.shape[1], shown.shares.shape[1]
    torch.manual_seed(0)
    sac_settings = msgspec.structs.replace(plain_settings(actions), actor_after=actor_after, critic_rate=3e-3)
    sac = Sac(PlainActor(features, actions, WIDTHS), sac_settings, seed=0)
    replay = PrioritisedReplay(200, features, actions, PrioritySettings(batches_to_one=50), shown)
    return OnlineTraining(sac, [ClusterEnvironment(jobs=8)], replay, settings, 0, CloningTerm(fades_after=30))


def test_training_with_demonstrations_goes_on_exactly_where_it_stopped(tmp_path: Path) -> None:
    """Prioritised replay, demonstrations, pretraining and cloning term included."""
    settings = OnlineSettings(random_steps=5, learning_starts=5, pretraining=6)
    whole, first, second = (shown_training(settings) for _ in range(3))
    whole.run(40)
    first.run(20)
    first.save(tmp_path)
    second.load(tmp_path)
    second.run(20)
    assert whole.sac.steps == second.sac.steps == 6 + 35
    for name, parameter in whole.sac.actor.state_dict().items():
        assert torch.equal(parameter, second.sac.actor.state_dict()[name])


def test_critics_learn_from_demonstrations_before_the_actor_moves() -> None:
    """Before the first step, and then, with what the actor experiences, until the settings let it move."""
    learner = shown_training(OnlineSettings(random_steps=0, learning_starts=0, pretraining=60), actor_after=70)
    losses: list[Losses] = []
    cloned = learner.sac.actor.location.weight.detach().clone()
    learner.run(10, losses.append)
    assert learner.sac.steps == 60 + 10
    assert all(each.actor is None for each in losses)
    assert torch.equal(learner.sac.actor.location.weight, cloned)
    assert np.mean([each.critic for each in losses[50:60]]) < 0.5 * np.mean([each.critic for each in losses[:5]])
    learner.run(1)
    assert not torch.equal(learner.sac.actor.location.weight, cloned)


def test_pretraining_on_nothing_is_refused() -> None:
    sac = Sac(plain_actor(), plain_settings(3), seed=0)
    with pytest.raises(ValueError, match="give it demonstrations"):
        OnlineTraining(sac, [ClusterEnvironment(jobs=8)], Replay(10, 3, 3), OnlineSettings(pretraining=1), 0)
