"""Gradient steps a second of SAC on one thread: rlalloc's form, the plain one, and stable-baselines3's.

    python bench/sac_speed.py

All take steps in turns, so that other load on the machine affects them alike. The figure is the process's time of the
fastest turn, since disturbance only slows down. A step includes drawing the batch from the buffer.
docs/results/speed.md has figures.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, Final

import gymnasium
import msgspec
import numpy as np
import torch

from rlalloc.job import SHARES
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc_agent.actor import Actor
from rlalloc_simulator.gym_environment import ENVIRONMENT
from rlalloc_trainer.sac.plain_actor import PlainActor
from rlalloc_trainer.sac.replay_buffer import Replay, Transitions
from rlalloc_trainer.sac.soft_actor_critic import Sac, learn, plain_settings

ROWS: Final = 5_000
TURNS: Final = 12
STEPS: Final = 10
SIZES: Final = (((64, 64), 128), ((128, 128), 256), ((256, 256), 256))
Learn = Callable[[int], object]


def main() -> None:
    """Print a line for each size of the networks."""
    torch.set_num_threads(1)
    print(f"{'hidden layers':>14} {'batch':>6} {'rlalloc':>9} {'plain':>9} {'stable-baselines3':>18}   updates/s")
    for hidden, batch in SIZES:
        residual = ours(Sac(Actor(hidden=hidden), msgspec.structs.replace(plain_settings(SHARES), batch=batch), 0))
        actor = PlainActor(len(DEFAULT_INPUTS), SHARES, hidden)
        plain = ours(Sac(actor, msgspec.structs.replace(plain_settings(SHARES), batch=batch), 0))
        one, two, three = (f"{rate:.0f}" for rate in rates([residual, plain, theirs(hidden, batch)]))
        print(f"{hidden!s:>14} {batch:>6} {one:>9} {two:>9} {three:>18}", flush=True)


def rates(learners: list[Learn]) -> list[float]:
    """Return gradient steps a second of each."""
    fastest = [float("inf")] * len(learners)
    for _ in range(TURNS):
        for number, learner in enumerate(learners):
            start = time.process_time()
            learner(STEPS)
            fastest[number] = min(fastest[number], (time.process_time() - start) / STEPS)
    return [1.0 / seconds for seconds in fastest]


def ours(sac: Sac[Any]) -> Learn:
    """Return a function that takes our gradient steps on random chains of decisions."""
    generator = np.random.default_rng(0)
    replay = Replay(ROWS, len(DEFAULT_INPUTS), SHARES)
    observation = generator.uniform(0, 1, (ROWS, len(DEFAULT_INPUTS))).astype(np.float32)
    replay.add(
        Transitions(
            observation=observation,
            shares=generator.random((ROWS, SHARES), dtype=np.float32),
            reward=generator.normal(size=ROWS).astype(np.float32),
            next_observation=np.roll(observation, 1, axis=0),
            discount=np.full(ROWS, 0.99, np.float32),
        )
    )
    return lambda steps: learn(sac, replay, steps, generator)


def theirs(hidden: tuple[int, ...], batch: int) -> Learn:
    """Return a function that takes stable-baselines3's gradient steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others' packages warn of on their import is not ours to mend
        from stable_baselines3 import SAC
    architecture = {"net_arch": list(hidden)}
    made = gymnasium.make(ENVIRONMENT, jobs=20)
    model = SAC("MlpPolicy", made, policy_kwargs=architecture, batch_size=batch, buffer_size=ROWS, device="cpu")
    model.learn(100)  # fills the buffer, and learns nothing yet
    return lambda steps: model.train(steps, batch)


if __name__ == "__main__":
    main()
