"""The shipped policy, from nothing: SAC on simulated streams, chosen on some, reported on others.

Each round takes decisions again under the latest policy (the heuristic at first), adds what they were worth to the
replay buffer, learns, and is scored on validation streams. The best round is kept; its figures come from test streams
that nothing was chosen on.
"""

import hashlib
from collections.abc import Iterator, Sequence
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
from rlalloc_trainer.training_folder import Curve, RoundOutcome, TrainingFolder
from rlalloc_trainer.versions import new_manifest, version_files
from rlalloc_trainer.weighed_critic import sac_for_any_weights

RIVALS: Final = (
    "as-requested",
    "repaired",
    "efficiency-adaptive+shortest-first",
    "marginal-gain+shortest-first",
    "price-ef+shortest-first",
    BASE,
)
VERSION: Final = "shipped-3"
VALIDATION_BASE: Final = "validation-base"
"""Under what name the heuristic's results on the validation streams are kept."""
TRAINING_FOLDER: Final = "training"
STREAMS_A_SEED: Final = 10_000
"""Numbers of training streams that a seed has for itself."""
SIMULATING: Final = 0.6
LEARNING: Final = 0.3
"""Of the time of a round; the progress bar's estimate. The rest is validation."""
CURVES: Final = ("critic", "actor", "entropy", "temperature")
CURVE_STEPS: Final = 25


class PretrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``rounds`` of ``streams`` streams and ``steps`` gradient steps each; streams to choose and to report on."""

    seed: int = 0
    rounds: int = 1
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
    if settings.rounds < 1:
        raise PolicyError("no round was trained: ask for at least one")
    folder = TrainingFolder(directory / TRAINING_FOLDER, settings)
    torch.manual_seed(settings.seed)
    sac = sac_for_any_weights(Actor(len(FEATURES), HIDDEN), settings.sac, settings.seed)
    with processes(workers) as spread:
        outcomes = _rounds(settings, sac, folder, spread, report)
        best = min(outcomes, key=lambda outcome: outcome.validation.estimate)
        folder.load_sac(best.number, sac)
        report("choosing where it answers", 0.9)
        answers, ways = _where(sac.actor, settings, folder, spread)
        report("testing on unseen streams", 0.92)
        chosen = ActorWeights.of(sac.actor, answers)
        contenders: dict[str, Contender] = {VERSION: chosen, **{name: name for name in RIVALS}}
        results = {}
        for number, (name, contender) in enumerate(contenders.items()):
            results[name] = _run(f"test-{name}", contender, TEST, settings.test_streams, folder, spread)
            report("testing on unseen streams", 0.92 + 0.08 * (number + 1) / len(contenders))
    ratios = {name: jct_ratio(results[VERSION], results[name], settings.confidence) for name in RIVALS}
    training = {
        "settings": msgspec.to_builtins(settings),
        "chosen_round": best.number,
        "rounds": [_summary(outcome) for outcome in outcomes],
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


def _rounds(
    settings: PretrainSettings, sac: Sac[Actor], folder: TrainingFolder, spread: Map, report: Report
) -> list[RoundOutcome]:
    """Train all rounds that are not done yet, and return how each went."""
    outcomes = folder.outcomes()
    replay = Hindsight(settings.rounds * settings.streams * settings.labels.rows, len(FEATURES), SHARES)
    base = _run(VALIDATION_BASE, BASE, VALIDATION, settings.validation_streams, folder, spread)
    for number in range(1, settings.rounds + 1):
        share = 0.9 / settings.rounds

        def progress(what: str, part: float, number: int = number, share: float = share) -> None:
            report(f"round {number}: {what}", share * (number - 1 + part))

        policy: Contender = BASE if number == 1 else ActorWeights.of(sac.actor)
        for labels in _labels(number, policy, settings, folder, spread, progress):
            replay.add(labels.observation, labels.shares, labels.gain)
        if number <= len(outcomes):
            folder.load_sac(number, sac)
            continue
        curves = _learn(number, sac, replay, settings, progress)
        name = f"validation-round-{number}"
        results = _run(name, ActorWeights.of(sac.actor), VALIDATION, settings.validation_streams, folder, spread)
        ratio = jct_ratio(results, base, settings.confidence)
        outcomes.append(RoundOutcome(number=number, validation=ratio, labels=len(replay), curves=curves))
        folder.keep_round(outcomes[-1], sac)
        write_tensorboard(outcomes[-1], sac.steps, folder.path / "tensorboard")
        draw_curves(outcomes, folder.path / "curves.png")
    return outcomes


def _labels(
    number: int, policy: Contender, settings: PretrainSettings, folder: TrainingFolder, spread: Map, progress: Report
) -> Iterator[Labels]:
    """Yield the labels of a round's streams in their order: those kept, and those yet to be made."""
    first = TRAINING + STREAMS_A_SEED * settings.seed + (number - 1) * settings.streams
    numbers = range(first, first + settings.streams)
    tasks = [(policy, each, settings.labels) for each in numbers if folder.labels(number, each) is None]
    fresh = spread(label_stream, tasks)
    for done, each in enumerate(numbers, start=1):
        labels = folder.labels(number, each)
        if labels is None:
            labels = next(fresh)
            folder.keep_labels(number, each, labels)
        yield labels
        progress("simulating", SIMULATING * done / len(numbers))


def label_stream(task: tuple[Contender, int, LabelSettings]) -> Labels:
    """Take decisions of the stream of that number again."""
    contender, number, settings = task
    generator = np.random.default_rng((number, 3))
    return label(training_stream(number), policy_of(contender), settings, generator)


def _learn(
    number: int, sac: Sac[Actor], replay: Hindsight, settings: PretrainSettings, progress: Report
) -> dict[str, Curve]:
    """Take a round's gradient steps; return SAC's figures on the way, averaged over CURVE_STEPS steps each."""
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
            done = sac.steps - (number - 1) * settings.steps
            progress("learning", SIMULATING + LEARNING * done / settings.steps)

    learn(sac, replay, settings.steps, np.random.default_rng((settings.seed, number)), each_step)
    return {
        name: Curve(tuple(step for step, _ in found), tuple(value for _, value in found))
        for name, found in points.items()
    }


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


def _summary(outcome: RoundOutcome) -> dict[str, object]:
    ends = {name: curve.values[-1] for name, curve in outcome.curves.items() if curve.values}
    return {"validation_ratio": msgspec.to_builtins(outcome.validation), "labels": outcome.labels, **ends}


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
