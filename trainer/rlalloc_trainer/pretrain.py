"""The shipped policy, from nothing: SAC on simulated streams, chosen on some, reported on others.

Each round takes decisions again under the latest policy (the heuristic at first), adds what they were worth to the
replay buffer, learns, and is scored on validation streams. The best round is kept; its figures come from test streams
that nothing was chosen on.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch

from rlalloc.errors import PolicyError
from rlalloc.observation import FEATURES
from rlalloc.policies import MANIFEST_FILE
from rlalloc_agent.actor import HIDDEN, SHARES, Actor, actor_from_bytes
from rlalloc_trainer.counterfactual import LabelSettings, label
from rlalloc_trainer.critic import Critics
from rlalloc_trainer.evaluation import (
    ActorWeights,
    Contender,
    Interval,
    Map,
    Stream,
    StreamResult,
    evaluate,
    jct_ratio,
    policy_of,
    processes,
)
from rlalloc_trainer.progress import Report
from rlalloc_trainer.replay import Replay, Transitions
from rlalloc_trainer.sac import Losses, Sac, SacSettings, learn
from rlalloc_trainer.versions import new_manifest, version_files
from rlalloc_trainer.workload import generate, varied

RIVALS: Final = ("as-requested", "repaired", "price-ef")
BASE: Final = "price-ef"
VERSION: Final = "shipped-1"
VALIDATION_SEEDS: Final = 500_000
TEST_SEEDS: Final = 900_000
"""Streams are numbered: those for training from seed · 1000 + 1,000,000, for validation and test from here."""
LEARNING_SHARE: Final = 0.5
"""Of the time of a round; the progress bar's estimate."""


class PretrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``rounds`` of ``streams`` streams and ``steps`` gradient steps each; streams to choose and to report on."""

    seed: int = 0
    rounds: int = 3
    streams: int = 240
    steps: int = 1500
    validation_streams: int = 80
    test_streams: int = 240
    confidence: float = 0.9
    labels: LabelSettings = LabelSettings()
    sac: SacSettings = SacSettings()

    def scaled(self, budget: float) -> "PretrainSettings":
        """Return settings for ``budget`` times the work; never below two streams and one step."""
        return msgspec.structs.replace(
            self,
            streams=max(2, round(self.streams * budget)),
            steps=max(1, round(self.steps * budget)),
            validation_streams=max(2, round(self.validation_streams * budget)),
            test_streams=max(2, round(self.test_streams * budget)),
        )


class _Best(msgspec.Struct, frozen=True):
    """The best round so far; ``ratio`` is its mean JCT over price-EF's on the validation streams."""

    ratio: float
    round_number: int
    actor: ActorWeights
    critics: Critics


def pretrain(settings: PretrainSettings, directory: Path, report: Report) -> dict[str, Interval]:
    """Make a policy version in ``directory`` and return its mean JCT over that of each rival on test streams."""
    torch.manual_seed(settings.seed)
    with processes(2) as spread:
        best, history = _rounds(settings, spread, report)
        report("testing on unseen streams", 0.9)
        streams = _streams(TEST_SEEDS, settings.test_streams)
        results = evaluate({VERSION: best.actor, **{name: name for name in RIVALS}}, streams, spread)
    ratios = {name: jct_ratio(results[VERSION], results[name], settings.confidence) for name in RIVALS}
    actor = actor_from_bytes(best.actor.content, best.actor.hidden)
    training = {"settings": msgspec.to_builtins(settings), "chosen_round": best.round_number, "rounds": history}
    evaluation = {
        "workload": "rlalloc_trainer.workload.varied, seeds from 900000",
        "streams": len(streams),
        "confidence": settings.confidence,
        "jct_ratio": msgspec.to_builtins(ratios),
        "mean_over_streams": {name: _means(results[name]) for name in results},
    }
    _write(directory, actor, best.critics, training, evaluation)
    return ratios


def _rounds(settings: PretrainSettings, spread: Map, report: Report) -> tuple[_Best, list[dict[str, float]]]:
    sac = Sac(Actor(len(FEATURES), HIDDEN), settings.sac, settings.seed)
    replay = Replay(settings.rounds * settings.streams * settings.labels.rows, len(FEATURES), SHARES)
    generator = np.random.default_rng(settings.seed)
    validation = _streams(VALIDATION_SEEDS, settings.validation_streams)
    heuristic = evaluate({BASE: BASE}, validation, spread)[BASE]
    best: _Best | None = None
    history = []
    policy: Contender = BASE
    for number in range(settings.rounds):
        first = 1_000_000 + 1000 * settings.seed + number * settings.streams
        before = 0.9 * number / settings.rounds
        tasks = [(policy, first + index, settings.labels) for index in range(settings.streams)]
        for done, transitions in enumerate(spread(label_stream, tasks), start=1):
            replay.add(transitions)
            report(f"round {number + 1}: simulating", before + 0.45 * done / len(tasks) / settings.rounds)

        losses: list[float] = []

        def each_step(step: Losses, before: float = before, losses: list[float] = losses) -> None:
            losses.append(step.critic)
            report("learning", before + (0.45 + 0.4 * len(losses) / settings.steps) / settings.rounds)

        learn(sac, replay, settings.steps, generator, each_step)
        policy = ActorWeights.of(sac.actor)
        ratio = jct_ratio(evaluate({"": policy}, validation, spread)[""], heuristic, settings.confidence)
        history.append(
            {
                "validation_ratio": ratio.estimate,
                "critic_loss": float(np.mean(losses)),
                "temperature": sac.temperature,
                "labels": float(len(replay)),
            }
        )
        if best is None or ratio.estimate < best.ratio:
            best = _Best(ratio.estimate, number + 1, policy, sac.copy_of_critics())
    if best is None:
        raise PolicyError("no round was trained: ask for at least one")
    return best, history


def label_stream(task: tuple[Contender, int, LabelSettings]) -> Transitions:
    """Take decisions of the stream of that number again."""
    contender, seed, settings = task
    stream = _stream(seed)
    generator = np.random.default_rng((seed, 3))
    return label(stream.cluster, stream.jobs, policy_of(contender), settings, generator).retaken


def _streams(first: int, count: int) -> list[Stream]:
    return [_stream(first + index) for index in range(count)]


def _stream(seed: int) -> Stream:
    workload = varied(seed)
    return Stream(workload.cluster, tuple(generate(workload, seed)))


def _means(results: Sequence[StreamResult]) -> dict[str, float]:
    """Figures for people: seconds and GPU-hours over all streams, whose time scales differ."""
    return {
        "jct_s": float(np.mean([result.jct_s for result in results])),
        "wait_s": float(np.mean([result.wait_s for result in results])),
        "gpu_hours": float(np.mean([result.gpu_s for result in results])) / 3600.0,
        "killed": float(np.mean([result.killed for result in results])),
        "reward": float(np.mean([result.reward for result in results])),
    }


def _write(
    directory: Path,
    actor: Actor,
    critics: Critics,
    training: dict[str, object],
    evaluation: dict[str, object],
) -> None:
    files = version_files(actor, critics)
    manifest = msgspec.structs.replace(
        new_manifest(actor, None, training, evaluation),
        version=VERSION,
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    )
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / MANIFEST_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
