"""The environment keeps gymnasium's promises, and others' algorithms learn in it."""

import subprocess
import sys
import warnings

import gymnasium
import msgspec
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from rlalloc.job import SHARES
from rlalloc.policy.policy_inputs import baseline_shares
from rlalloc_simulator.engine.batched_simulators import BatchedSimulators, stacked
from rlalloc_simulator.gym_environment import ENVIRONMENT, ClusterEnvironment
from rlalloc_simulator.training_workloads import training_workload
from tests.simulator.engine.by_hand import job, site, size

FULL_NAME = f"{ClusterEnvironment.__module__}:{ENVIRONMENT}"
ONE = np.ones(SHARES, dtype=np.float32)


def test_gymnasium_finds_it_by_name_and_its_checker_is_content() -> None:
    made = gymnasium.make(ENVIRONMENT, jobs=8)
    assert isinstance(made.unwrapped, ClusterEnvironment)
    check_env(made.unwrapped, skip_render_check=True)


@pytest.mark.parametrize(("mode", "options"), [("sync", {}), ("async", {"context": "spawn"})])
def test_the_vector_forms_step_side_by_side(mode: str, options: dict[str, str]) -> None:
    """Each part under gymnasium's passive checker; with the same seed both are the single form, side by side."""
    many = gymnasium.make_vec(ENVIRONMENT, num_envs=2, vectorization_mode=mode, vector_kwargs=options, jobs=6)
    observations, _ = many.reset(seed=1)
    alone = [ClusterEnvironment(jobs=6) for _ in range(2)]
    for place, one in enumerate(alone):
        np.testing.assert_array_equal(observations[place], one.reset(seed=1 + place)[0])
    ended = False
    while not ended:  # until the first is done: the next step would begin another workload
        observations, rewards, terminated, truncated, _ = many.step(np.stack([ONE, ONE / 2]))
        assert not truncated.any()
        for place, one in enumerate(alone):
            observation, reward, done, *_ = one.step(ONE / np.float32(1 + place))
            np.testing.assert_array_equal(observations[place], observation)
            assert rewards[place] == pytest.approx(reward)
            assert terminated[place] == done
        ended = bool(terminated.any())
    many.close()


def test_a_fresh_process_finds_it_by_its_full_name() -> None:
    """Gymnasium 1.0 and later load no plugins: the module is named with it, and is imported then."""
    code = f"import gymnasium; gymnasium.make({FULL_NAME!r}, jobs=1); gymnasium.make_vec({ENVIRONMENT!r}, jobs=1)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rewards_add_up_to_the_mean_jct() -> None:
    environment = ClusterEnvironment(jobs=20)
    observation, _ = environment.reset(seed=3)
    total, terminated = 0.0, False
    while not terminated:
        shares = baseline_shares(observation)
        action = np.array(msgspec.structs.astuple(shares), dtype=np.float32)
        observation, reward, terminated, _, _ = environment.step(action)
        total += reward
    outcomes = environment.simulator.outcomes()
    jct_s = float(np.mean(outcomes["finished_s"] - outcomes["submit_s"]))
    assert total == pytest.approx(-jct_s / environment._unit_s)


def test_the_same_seed_gives_the_same_episode() -> None:
    digests = set()
    for _ in range(2):
        environment = ClusterEnvironment(jobs=10)
        environment.reset(seed=5)
        while not environment.step(ONE)[2]:
            pass
        digests.add(environment.simulator.digest())
    assert len(digests) == 1


def test_what_a_step_decides_is_what_the_job_gets() -> None:
    there = site(2), [job(0, size(4), managed=True), job(1, size(2), managed=True)]
    environment = ClusterEnvironment(lambda _: there)
    environment.reset()
    environment.step(np.zeros(SHARES, dtype=np.float32))
    environment.step(ONE)
    sizes = environment.simulator.world.sizes
    assert (sizes["nodes"] * sizes["gpus_per_node"]).tolist() == [1, 16]


def test_a_workload_without_questions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one has to be managed"):
        ClusterEnvironment(lambda _: (site(), [job(0, size(1))])).reset()


def test_many_simulators_are_answered_in_batches() -> None:
    """And do what each of them would have done alone."""
    workloads = [training_workload(seed, 12) for seed in range(4)]
    together = BatchedSimulators(workloads)
    batches = 0
    for questions in together.questions():
        batches += 1
        assert stacked(questions).features.shape[0] == len(questions)
        together.answer(questions, np.array([[0.5, 1.0, 1.0, 1.0]] * len(questions)))
    lengths = [len(workload.jobs) for workload in workloads]
    assert max(lengths) <= batches < sum(lengths)
    for workload, simulator in zip(workloads, together.simulators, strict=True):
        alone = BatchedSimulators([workload])
        for questions in alone.questions():
            alone.answer(questions, np.array([[0.5, 1.0, 1.0, 1.0]] * len(questions)))
        assert alone.simulators[0].digest() == simulator.digest()


@pytest.mark.slow
def test_sac_of_stable_baselines3_trains_on_it() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only get into each other's way on a busy machine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others' packages warn of on their import is not ours to mend
        from stable_baselines3 import SAC
    made = gymnasium.make(ENVIRONMENT, jobs=15)
    model = SAC("MlpPolicy", made, learning_starts=50, batch_size=32, seed=0, device="cpu", buffer_size=1000)
    before = [parameter.detach().clone() for parameter in model.actor.parameters()]
    model.learn(total_timesteps=250)
    assert model.num_timesteps == 250
    assert any((one != other).any() for one, other in zip(before, model.actor.parameters(), strict=True))
    observation, _ = made.reset(seed=0)
    action, _ = model.predict(observation, deterministic=True)
    assert made.action_space.contains(action)
    torch.set_num_threads(threads)
