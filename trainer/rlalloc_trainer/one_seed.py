"""One seed of the training from nothing: an actor is shown what experts do, then SAC learns on from there."""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch
from torch import nn

from rlalloc.errors import PolicyError
from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS
from rlalloc.objective.weights import features_of
from rlalloc.observation import FEATURES, WEIGHT_FEATURES
from rlalloc_agent.actor import HIDDEN, Actor
from rlalloc_trainer.counterfactual import Labels, LabelSettings
from rlalloc_trainer.hindsight import Hindsight
from rlalloc_trainer.imitation.cloning import WarmStart, clone
from rlalloc_trainer.imitation.shown import Shown
from rlalloc_trainer.replay import single_decisions
from rlalloc_trainer.sac import Losses, Sac, SacSettings, learn
from rlalloc_trainer.simulator.training_streams import TRAINING
from rlalloc_trainer.training_folder import Curve, Curves, Rows, TrainingFolder
from rlalloc_trainer.weighed_critic import sac_for_any_weights

STREAMS_A_SEED: Final = 10_000
"""Numbers of training streams that a command's seed has for itself."""
CURVES: Final = ("critic", "actor", "entropy", "temperature")
CURVE_STEPS: Final = 25


class PretrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``streams`` to learn from, ``shown_streams`` of them also to be shown; streams to choose and to report on.

    ``seeds`` networks, each of which takes the steps of the ``warm_starts``, in turn, and then SAC's ``steps``.
    """

    seed: int = 0
    seeds: int = 5
    streams: int = 600
    shown_streams: int = 400
    steps: int = 4500
    validation_streams: int = 120
    test_streams: int = 240
    confidence: float = 0.9
    labels: LabelSettings = LabelSettings()
    warm_starts: tuple[WarmStart, ...] = (
        WarmStart(steps=3000, batch=512, rate=2e-3),
        WarmStart(steps=3000, batch=512, rate=5e-4),
        WarmStart(steps=2000, batch=512, rate=1e-4),
    )
    sac: SacSettings = SacSettings(actor_after=1500)

    def scaled(self, budget: float) -> "PretrainSettings":
        """Return settings for ``budget`` times the work; never below two streams and one step."""
        return msgspec.structs.replace(
            self,
            streams=max(2, round(self.streams * budget)),
            shown_streams=max(2, round(self.shown_streams * budget)),
            warm_starts=tuple(
                msgspec.structs.replace(each, steps=max(1, round(each.steps * budget))) for each in self.warm_starts
            ),
            steps=max(1, round(self.steps * budget)),
            validation_streams=max(2, round(self.validation_streams * budget)),
            test_streams=max(2, round(self.test_streams * budget)),
        )

    @property
    def numbers(self) -> range:
        """Of the training streams."""
        first = TRAINING + STREAMS_A_SEED * self.seed
        return range(first, first + self.streams)


def learn_seed(task: tuple[PretrainSettings, Path, int]) -> None:
    """Take a seed's gradient steps on what is in the training's folder, and keep there what it learned."""
    settings, path, seed = task
    folder = TrainingFolder(path, settings)
    generator = np.random.default_rng((settings.seed, seed))
    sac = new_sac(settings, seed)
    _show(sac.actor, settings, folder, generator)
    folder.keep_shown_actor(seed, sac.actor)
    sac.anchor_here()
    folder.keep_learned(seed, sac, _learn(sac, settings, folder, generator))


def new_sac(settings: PretrainSettings, seed: int) -> Sac[Actor]:
    """Return SAC as that seed begins with it."""
    torch.manual_seed(1_000 * settings.seed + seed)
    return sac_for_any_weights(Actor(len(FEATURES), HIDDEN), settings.sac, 1_000 * settings.seed + seed)


def _show(actor: Actor, settings: PretrainSettings, folder: TrainingFolder, generator: np.random.Generator) -> None:
    found = [_kept(folder, Shown, number) for number in settings.numbers[: settings.shown_streams]]
    observation = np.concatenate([each.observation for each in found])
    shares = np.concatenate([each.shares for each in found])
    shown = single_decisions(observation, shares, np.zeros(len(shares), dtype=np.float32))
    for warm_start in settings.warm_starts:
        clone(actor, shown, warm_start, generator)
    ignore_weights(actor)


@torch.no_grad()
def ignore_weights(actor: Actor) -> None:
    """Let ``actor`` answer under any weights of the objective as it does under the default ones.

    Whoever was shown decisions under the default weights alone knows nothing of others: what its first layer makes
    of them is what it began with by chance.
    """
    first = actor.body[0]
    if not isinstance(first, nn.Linear):
        raise TypeError("an actor's body begins with a linear layer")
    columns = first.weight[:, WEIGHT_FEATURES]
    told = torch.from_numpy(features_of(DEFAULT_WEIGHTS.array).astype(np.float32))
    first.bias.copy_(first.bias + columns @ told)
    columns.zero_()


def _learn(
    sac: Sac[Actor], settings: PretrainSettings, folder: TrainingFolder, generator: np.random.Generator
) -> Curves:
    """Take SAC's steps; return its figures on the way, averaged over CURVE_STEPS steps each."""
    replay = Hindsight(settings.streams * settings.labels.rows, len(FEATURES), SHARES)
    for number in settings.numbers:
        labels = _kept(folder, Labels, number)
        replay.add(labels.observation, labels.shares, labels.gain)
    losses: list[Losses] = []
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in CURVES}

    def each_step(step: Losses) -> None:
        losses.append(step)
        if sac.steps % CURVE_STEPS == 0:
            for name in CURVES:
                known = [value for each in losses if (value := getattr(each, name)) is not None]
                if known:
                    points[name].append((sac.steps, float(np.mean(known))))
            losses.clear()

    learn(sac, replay, settings.steps, generator, each_step)
    return {
        name: Curve(tuple(step for step, _ in found), tuple(value for _, value in found))
        for name, found in points.items()
    }


def _kept(folder: TrainingFolder, kind: type[Rows], stream: int) -> Rows:
    rows = folder.found(kind, stream)
    if rows is None:
        raise PolicyError(f"{folder.path} has lost what was found on stream {stream}: begin anew in another folder")
    return rows
