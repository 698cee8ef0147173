"""SAC in gymnasium environments: act, remember, learn, step after step.

    environments = [gymnasium.make("Pendulum-v1")]
    training = plain_training(environments, plain_settings(1), OnlineSettings(), (256, 256), seed=0)
    training.run(8000)
    training.episodes                         # the total reward of each episode

Several environments step one after the other and share everything else. ``save`` and ``load`` keep all state, running
episodes included: a run that was interrupted ends with the same parameters, bit by bit.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic

import gymnasium
import msgspec
import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray

from rlalloc_trainer.imitation.cloning import CloningTerm
from rlalloc_trainer.sac.n_step import NStepReturns
from rlalloc_trainer.sac.plain_actor import PlainActor
from rlalloc_trainer.sac.prioritised_replay import PrioritisedReplay
from rlalloc_trainer.sac.replay_buffer import FloatArray, Replay
from rlalloc_trainer.sac.resumable_environments import Episodes, as_bytes, from_bytes
from rlalloc_trainer.sac.soft_actor_critic import ActorKind, Losses, Sac, SacSettings

SAC_FILE: Final = "sac.safetensors"
LOOP_FILE: Final = "loop.safetensors"


class OnlineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How experience is collected. Defaults are those of stable-baselines3's SAC.

    gamma            discount of what follows a step
    look_ahead       n of the n-step returns; 1 is plain SAC
    capacity         transitions that are remembered
    learning_starts  steps before anything is learned
    random_steps     first steps with uniformly random shares: until learning starts (None), or none (0) where the
                     actor already knows something
    train_every      environment steps from one training to the next
    gradient_steps   batches learned from at each training
    pretraining      batches learned from before the first step, from what the replay holds: demonstrations
    """

    gamma: float = 0.99
    look_ahead: int = 1
    capacity: int = 100_000
    learning_starts: int = 100
    random_steps: int | None = None
    train_every: int = 1
    gradient_steps: int = 1
    pretraining: int = 0


class Episode(msgspec.Struct, frozen=True):
    """An episode that ended: at which step of the training, and the sum of its rewards."""

    step: int
    total_reward: float


class OnlineTraining(Generic[ActorKind]):
    """An actor that learns from what it does. Everything random follows from ``seed`` and the actor's weights."""

    def __init__(
        self,
        sac: Sac[ActorKind],
        environments: Sequence[gymnasium.Env[Any, Any]],
        replay: Replay | PrioritisedReplay,
        settings: OnlineSettings,
        seed: int,
        cloning: CloningTerm | None = None,
    ) -> None:
        """The replay has to be empty, or hold transitions of the same discount, such as demonstrations.

        ``cloning`` is what the actor pays for leaving the demonstrations of a prioritised replay. Raises ValueError
        if there is to be pretraining, and nothing to learn from.
        """
        if settings.pretraining and not len(replay):
            raise ValueError(
                "pretraining learns from what the replay holds, which is nothing: give it demonstrations"
            )
        self.sac = sac
        self.replay = replay
        self.settings = settings
        self.cloning = cloning
        self.steps = 0
        self.episodes: list[Episode] = []
        self.generator = np.random.default_rng(seed)
        seeds = self.generator.integers(2**31, size=len(environments)).tolist()
        self._running = [Episodes(each, seed) for each, seed in zip(environments, seeds, strict=True)]
        self._returns = [NStepReturns(settings.look_ahead, settings.gamma) for _ in environments]
        self._totals = np.zeros(len(environments))

    def run(self, steps: int, each_update: Callable[[Losses], None] = lambda _: None) -> None:
        """Take at least ``steps`` steps: up to a multiple of the number of environments."""
        while self.steps == 0 and self.sac.steps < self.settings.pretraining:
            each_update(self._update())
        goal = self.steps + steps
        while self.steps < goal:
            before = self.steps
            self._act()
            if self.steps <= self.settings.learning_starts:
                continue
            trainings = self.steps // self.settings.train_every - before // self.settings.train_every
            for _ in range(trainings * self.settings.gradient_steps):
                each_update(self._update())

    def _act(self) -> None:
        """Take one step in each environment."""
        for number, shares in enumerate(self._choose()):
            episodes = self._running[number]
            observation = episodes.observation
            following, reward, terminated, truncated = episodes.step(shares)
            self.replay.add(
                self._returns[number].add(
                    observation, shares, reward, following, terminated=terminated, truncated=truncated
                )
            )
            self.steps += 1
            self._totals[number] += reward
            if terminated or truncated:
                self.episodes.append(Episode(self.steps, float(self._totals[number])))
                self._totals[number] = 0.0
                episodes.begin()

    def _choose(self) -> FloatArray:
        """Shares for all environments (environments, actions): first uniform, then drawn from the actor."""
        settings = self.settings
        if self.steps < (settings.learning_starts if settings.random_steps is None else settings.random_steps):
            return self.generator.random((len(self._running), self.sac.actor.actions), dtype=np.float32)
        observations = np.stack([episodes.observation for episodes in self._running])
        shares, _ = self.sac.actor.decide(observations, sample=True, generator=self.sac.generator)
        return shares.astype(np.float32)

    def _update(self) -> Losses:
        """Learn from one batch, and set its priorities in a prioritised replay."""
        if isinstance(self.replay, Replay):
            return self.sac.update(self.replay.sample(self.sac.settings.batch, self.generator))
        drawn = self.replay.sample(self.sac.settings.batch, self.generator)
        pays = self.cloning.payments(drawn.expert, self.steps) if self.cloning else None
        losses = self.sac.update(drawn.transitions, drawn.weights, pays)
        self.replay.prioritise(drawn.rows, losses.errors)
        return losses

    def save(self, folder: Path) -> None:
        """Write all that ``load`` needs into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.sac.save(folder / SAC_FILE)
        parts: dict[str, Mapping[str, NDArray[np.generic]]] = {"replay": self.replay.state()}
        for number, (episodes, returns) in enumerate(zip(self._running, self._returns, strict=True)):
            parts |= {f"episodes-{number}": episodes.state(), f"returns-{number}": returns.state()}
        arrays = {f"{part}/{name}": array for part, state in parts.items() for name, array in state.items()}
        arrays |= {
            "generator": as_bytes(self.generator.bit_generator.state),
            "totals": self._totals,
            "steps": np.array(self.steps),
            "episode_steps": np.array([episode.step for episode in self.episodes], dtype=np.int64),
            "episode_rewards": np.array([episode.total_reward for episode in self.episodes], dtype=np.float64),
        }
        safetensors.numpy.save_file(
            {key: np.asarray(array, order="C") for key, array in arrays.items()}, folder / LOOP_FILE
        )

    def load(self, folder: Path) -> None:
        """Load what ``save`` wrote, for the same settings, shapes and environments."""
        self.sac.load(folder / SAC_FILE)
        arrays = safetensors.numpy.load_file(folder / LOOP_FILE)
        self.replay.restore(_under(arrays, "replay"))
        for number, (episodes, returns) in enumerate(zip(self._running, self._returns, strict=True)):
            episodes.restore(_under(arrays, f"episodes-{number}"))
            returns.restore(_under(arrays, f"returns-{number}"))
        self.generator.bit_generator.state = from_bytes(arrays["generator"])
        self._totals = arrays["totals"]
        self.steps = int(arrays["steps"])
        ended = zip(arrays["episode_steps"].tolist(), arrays["episode_rewards"].tolist(), strict=True)
        self.episodes = [Episode(step, total_reward) for step, total_reward in ended]


def plain_training(
    environments: Sequence[gymnasium.Env[Any, Any]],
    sac_settings: SacSettings,
    settings: OnlineSettings,
    hidden: Sequence[int],
    seed: int,
) -> OnlineTraining[PlainActor]:
    """Return a training of a new actor without a heuristic, with layers of widths ``hidden``."""
    features = int(np.prod(environments[0].observation_space.shape or ()))
    actions = int(np.prod(environments[0].action_space.shape or ()))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = PlainActor(features, actions, hidden)
    sac = Sac(actor, sac_settings, seed)
    return OnlineTraining(sac, environments, Replay(settings.capacity, features, actions), settings, seed)


def _under(arrays: Mapping[str, NDArray[np.generic]], part: str) -> dict[str, NDArray[np.generic]]:
    return {key.removeprefix(f"{part}/"): array for key, array in arrays.items() if key.startswith(f"{part}/")}
