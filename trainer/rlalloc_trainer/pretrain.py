"""The shipped policy, from nothing: SAC on simulated streams, chosen on some, reported on others.

Decisions of the base heuristic are taken again, and what they were worth is what SAC learns from, once for each of
some seeds. The seed that does best on validation streams is kept; its figures come from test streams that nothing was
chosen on.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch

from rlalloc.errors import PolicyError
from rlalloc.job import SHARES
from rlalloc.observation import FEATURES
from rlalloc.policies import MANIFEST_FILE, Answering, Manifest
from rlalloc_agent.actor import HIDDEN, Actor
from rlalloc_trainer.answering import BASE, WAYS, best_of
from rlalloc_trainer.counterfactual import Labels, LabelSettings, label
from rlalloc_trainer.curves import draw_curves, write_tensorboard
from rlalloc_trainer.evaluation import (
    ActorWeights,
    Contender,
    Map,
    StreamResult,
    jct_ratio,
    policy_of,
    processes,
    run_stream,
)
from rlalloc_trainer.hindsight import Hindsight
from rlalloc_trainer.intervals import Interval
from rlalloc_trainer.progress import Report
from rlalloc_trainer.sac import Losses, Sac, SacSettings, learn
from rlalloc_trainer.simulator.training_streams import TEST, TRAINING, VALIDATION, training_stream
from rlalloc_trainer.training_folder import Curve, SeedOutcome, TrainingFolder
from rlalloc_trainer.versions import new_manifest, version_files
from rlalloc_trainer.weighed_critic import sac_for_any_weights

RIVALS: Final = (
    "as-requested",
    "repaired",
    "efficiency-adaptive+shortest-first",
    "marginal-gain+shortest-first",
    "steep-price+shortest-first",
    BASE,
)
VERSION: Final = "shipped-3"
VALIDATION_BASE: Final = "validation-base"
"""Under what name the heuristic's results on the validation streams are kept."""
TRAINING_FOLDER: Final = "training"
STREAMS_A_SEED: Final = 10_000
"""Numbers of training streams that a command's seed has for itself."""
LABELLED: Final = 0.4
LEARNED: Final = 0.65
VALIDATED: Final = 0.85
TESTING: Final = 0.9
"""Of the time of the whole when each is done, or begins: the progress bar's estimate."""
CURVES: Final = ("critic", "actor", "entropy", "temperature")
CURVE_STEPS: Final = 25


class PretrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``streams`` to learn from; ``seeds`` networks of ``steps`` gradient steps; streams to choose and report on."""

    seed: int = 0
    seeds: int = 5
    streams: int = 600
    steps: int = 6000
    validation_streams: int = 120
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


def pretrain(settings: PretrainSettings, directory: Path, report: Report, workers: int = 2) -> dict[str, Interval]:
    """Make a policy version in ``directory`` and return its mean JCT over that of each rival on test streams.

    What is done is kept in ``directory``/training: a training that was interrupted goes on there, to the same bytes.
    The work is spread over ``workers`` processes, whatever their number with the same result. Raises PolicyError if
    another training is there.
    """
    if settings.seeds < 1:
        raise PolicyError("nothing was trained: ask for one seed at least")
    folder = TrainingFolder(directory / TRAINING_FOLDER, settings)
    with processes(workers) as spread:
        _make_labels(settings, folder, spread, report)
        _learn_all(settings, folder, spread, report)
        outcomes = _validate(settings, folder, spread, report)
        best = min(outcomes, key=lambda outcome: outcome.validation.estimate)
        sac = _new_sac(settings, best.seed)
        folder.load_sac(best.seed, sac)
        report("choosing where it answers", VALIDATED)
        answers, ways = _where(sac.actor, settings, folder, spread)
        report("testing on unseen streams", TESTING)
        chosen = ActorWeights.of(sac.actor, answers)
        contenders: dict[str, Contender] = {VERSION: chosen, **{name: name for name in RIVALS}}
        results = {}
        for number, (name, contender) in enumerate(contenders.items()):
            results[name] = _run(f"test-{name}", contender, TEST, settings.test_streams, folder, spread)
            report("testing on unseen streams", TESTING + (1 - TESTING) * (number + 1) / len(contenders))
    ratios = {name: jct_ratio(results[VERSION], results[name], settings.confidence) for name in RIVALS}
    training = {
        "settings": msgspec.to_builtins(settings),
        "chosen_seed": best.seed,
        "seeds": [_summary(outcome) for outcome in outcomes],
        "where_it_answers": msgspec.to_builtins(ways),
    }
    evaluation = {
        "workload": f"rlalloc_trainer.simulator.training_streams, from number {TEST}",
        "streams": settings.test_streams,
        "confidence": settings.confidence,
        "jct_ratio": msgspec.to_builtins(ratios),
        "mean_over_streams": {name: _means(results[name]) for name in results},
    }
    manifest = new_manifest(sac.actor, None, training, evaluation, answers)
    _write(directory, version_files(sac.actor, sac.critics), manifest)
    return ratios


def _where(
    actor: Actor, settings: PretrainSettings, folder: TrainingFolder, spread: Map
) -> tuple[Answering, dict[str, Interval]]:
    """Choose where the network answers on the validation streams, on which the heuristic has been run already."""
    streams = settings.validation_streams
    ways = {
        way: _run(f"validation-way-{number}", ActorWeights.of(actor, way), VALIDATION, streams, folder, spread)
        for number, way in enumerate(WAYS)
    }
    return best_of(ways, _run(VALIDATION_BASE, BASE, VALIDATION, streams, folder, spread))


def _numbers(settings: PretrainSettings) -> range:
    first = TRAINING + STREAMS_A_SEED * settings.seed
    return range(first, first + settings.streams)


def _make_labels(settings: PretrainSettings, folder: TrainingFolder, spread: Map, report: Report) -> None:
    """Take decisions of all training streams again, but for those whose labels are kept."""
    numbers = _numbers(settings)
    missing = [number for number in numbers if folder.labels(number) is None]
    made = spread(label_stream, [(BASE, number, settings.labels) for number in missing])
    for left, (number, labels) in zip(range(len(missing) - 1, -1, -1), zip(missing, made, strict=True), strict=True):
        folder.keep_labels(number, labels)
        report("simulating", LABELLED * (1 - left / len(numbers)))


def label_stream(task: tuple[Contender, int, LabelSettings]) -> Labels:
    """Take decisions of the stream of that number again."""
    contender, number, settings = task
    generator = np.random.default_rng((number, 3))
    return label(training_stream(number), policy_of(contender), settings, generator)


def _learn_all(settings: PretrainSettings, folder: TrainingFolder, spread: Map, report: Report) -> None:
    """Let all seeds learn that have not, several at a time."""
    report("learning", LABELLED)
    missing = [seed for seed in range(settings.seeds) if folder.curves(seed) is None]
    for left, _ in zip(
        range(len(missing) - 1, -1, -1),
        spread(learn_seed, [(settings, folder.path, seed) for seed in missing]),
        strict=True,
    ):
        report("learning", LEARNED - (LEARNED - LABELLED) * left / settings.seeds)


def learn_seed(task: tuple[PretrainSettings, Path, int]) -> None:
    """Take a seed's gradient steps on the labels in the training's folder, and keep there what it learned."""
    settings, path, seed = task
    folder = TrainingFolder(path, settings)
    replay = Hindsight(settings.streams * settings.labels.rows, len(FEATURES), SHARES)
    for number in _numbers(settings):
        labels = folder.labels(number)
        if labels is None:
            raise PolicyError(f"{path} has lost the labels of stream {number}: begin anew in another folder")
        replay.add(labels.observation, labels.shares, labels.gain)
    sac, losses = _new_sac(settings, seed), []
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in CURVES}

    def each_step(step: Losses) -> None:
        losses.append(step)
        if sac.steps % CURVE_STEPS == 0:
            for name in CURVES:
                known = [value for each in losses if (value := getattr(each, name)) is not None]
                if known:
                    points[name].append((sac.steps, float(np.mean(known))))
            losses.clear()

    learn(sac, replay, settings.steps, np.random.default_rng((settings.seed, seed)), each_step)
    curves = {
        name: Curve(tuple(step for step, _ in found), tuple(value for _, value in found))
        for name, found in points.items()
    }
    folder.keep_learned(seed, sac, curves)


def _new_sac(settings: PretrainSettings, seed: int) -> Sac[Actor]:
    """Return SAC as that seed begins with it."""
    torch.manual_seed(1_000 * settings.seed + seed)
    return sac_for_any_weights(Actor(len(FEATURES), HIDDEN), settings.sac, 1_000 * settings.seed + seed)


def _validate(settings: PretrainSettings, folder: TrainingFolder, spread: Map, report: Report) -> list[SeedOutcome]:
    """Run all seeds' policies on the validation streams, and draw the curves so far."""
    report("validating", LEARNED)
    base = _run(VALIDATION_BASE, BASE, VALIDATION, settings.validation_streams, folder, spread)
    outcomes: list[SeedOutcome] = []
    for seed in range(settings.seeds):
        sac = _new_sac(settings, seed)
        folder.load_sac(seed, sac)
        name = f"validation-seed-{seed}"
        results = _run(name, ActorWeights.of(sac.actor), VALIDATION, settings.validation_streams, folder, spread)
        ratio = jct_ratio(results, base, settings.confidence)
        outcomes.append(SeedOutcome(seed=seed, validation=ratio, curves=folder.curves(seed) or {}))
        write_tensorboard(outcomes[-1], folder.path / "tensorboard")
        draw_curves(outcomes, folder.path / "curves.png")
        report("validating", LEARNED + (VALIDATED - LEARNED) * (seed + 1) / settings.seeds)
    return outcomes


def _run(
    name: str, contender: Contender, first: int, streams: int, folder: TrainingFolder, spread: Map
) -> list[StreamResult]:
    """Run a policy on the streams from number ``first`` on, unless that is done."""
    results = folder.results(name)
    if results is None:
        results = list(spread(run_numbered, [(contender, first + index) for index in range(streams)]))
        folder.keep_results(name, results)
    return results


def run_numbered(task: tuple[Contender, int]) -> StreamResult:
    """Run a policy on the stream of that number."""
    contender, number = task
    return run_stream((contender, training_stream(number)))


def _summary(outcome: SeedOutcome) -> dict[str, object]:
    ends = {name: curve.values[-1] for name, curve in outcome.curves.items() if curve.values}
    return {"seed": outcome.seed, "validation_ratio": msgspec.to_builtins(outcome.validation), **ends}


def _means(results: Sequence[StreamResult]) -> dict[str, float]:
    """Figures for people: seconds and GPU-hours over all streams, whose time scales differ."""
    return {
        "jct_s": float(np.mean([result.jct_s for result in results])),
        "wait_s": float(np.mean([result.wait_s for result in results])),
        "gpu_hours": float(np.mean([result.gpu_s for result in results])) / 3600.0,
        "killed": float(np.mean([result.killed for result in results])),
    }


def _write(
    directory: Path,
    files: dict[str, bytes],
    manifest: Manifest,
) -> None:
    manifest = msgspec.structs.replace(
        manifest,
        version=VERSION,
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    )
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / MANIFEST_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
