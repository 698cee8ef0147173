"""The shipped policy, from nothing: SAC on simulated workloads, chosen on some, reported on others.

Decisions of the baseline heuristic are taken again, and from what they were worth SAC learns, each of some seeds for
itself. The actor that does best on validation workloads is tried on test workloads that nothing was chosen on, where
it does best. It answers only if it is surely ahead of the heuristic there.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from rlalloc.errors import PolicyError
from rlalloc.heuristics import BASELINE_NAME
from rlalloc.policies import EVERYWHERE, MANIFEST_FILE, NOWHERE, Manifest, Routing
from rlalloc_agent.actor import Actor
from rlalloc_simulator.paired_statistics import Interval
from rlalloc_simulator.parallel import ParallelMap, processes
from rlalloc_simulator.progress import ProgressCallback
from rlalloc_simulator.training_workloads import TEST, VALIDATION, training_workload
from rlalloc_trainer.advantages.counterfactual import Advantages, AdvantageSettings, counterfactual_advantages
from rlalloc_trainer.evaluation.policy_runs import (
    ActorWeights,
    Contender,
    WorkloadResult,
    jct_ratio,
    policy_of,
    run_workload,
)
from rlalloc_trainer.pipelines.learning_curves import draw_curves, write_tensorboard
from rlalloc_trainer.pipelines.pretrain_seed import PretrainSettings, learn_seed, new_sac
from rlalloc_trainer.pipelines.training_folder import SeedOutcome, TrainingFolder
from rlalloc_trainer.promotion.held_out_evidence import RIVALS
from rlalloc_trainer.promotion.policy_versions import new_manifest, version_files
from rlalloc_trainer.promotion.routing_choice import WAYS, best_of, described, served
from rlalloc_trainer.sac.soft_actor_critic import Sac

VERSION: Final = "shipped-10"
VALIDATION_BASE: Final = "validation-base"
"""Under what name the heuristic's results on the validation workloads are kept."""
TRAINING_FOLDER: Final = "training"
SIMULATED: Final = 0.44
LEARNED: Final = 0.5
VALIDATED: Final = 0.64
TESTING: Final = 0.78
"""Of the time of the whole when each is done, or begins: the progress bar's estimate."""


def pretrain(
    settings: PretrainSettings, directory: Path, report: ProgressCallback, workers: int = 2
) -> dict[str, Interval]:
    """Make a policy version in ``directory`` and return its mean JCT over that of each rival on test workloads.

    What is done is kept in ``directory``/training: a training that was interrupted goes on there, to the same bytes.
    The work is spread over ``workers`` processes, whatever their number with the same result. Raises PolicyError if
    another training is there.
    """
    if settings.seeds < 1:
        raise PolicyError("nothing was trained: ask for one seed at least")
    folder = TrainingFolder(directory / TRAINING_FOLDER, settings)
    with processes(workers) as parallel_map:
        _simulate_all(settings, folder, parallel_map, report)
        _learn_all(settings, folder, parallel_map, report)
        outcomes = _validate(settings, folder, parallel_map, report)
        best = min(outcomes, key=lambda outcome: outcome.ratio.estimate)
        sac = _sac_of(best.seed, settings, folder)
        report("choosing where it answers", VALIDATED)
        routing, ways = _where(best.seed, sac.actor, settings, folder, parallel_map)
        report("testing on unseen workloads", TESTING)
        chosen = served(ActorWeights.of(sac.actor), routing)
        contenders: dict[str, Contender] = {
            BASELINE_NAME: BASELINE_NAME,
            VERSION: chosen,
            **{name: name for name in RIVALS},
        }
        results = {}
        for number, (name, contender) in enumerate(contenders.items(), 1):
            # What has run already is not run again: a heuristic, where it is what answers.
            kept = contender if isinstance(contender, str) else name
            workloads = settings.test_workloads if name in (BASELINE_NAME, VERSION) else settings.rival_workloads
            results[name] = _run(f"test-{kept}", contender, TEST, workloads, folder, parallel_map)
            report("testing on unseen workloads", TESTING + (1 - TESTING) * number / len(contenders))
    judged = jct_ratio(results[VERSION], results[BASELINE_NAME], settings.confidence)
    if not judged.high < 1.0:  # not proven ahead: the heuristic answers, but for sites of other objectives
        routing = NOWHERE
        results[VERSION] = results[BASELINE_NAME]
    ratios = {name: _over(results[VERSION], results[name], settings.confidence) for name in RIVALS}
    training = {
        "settings": msgspec.to_builtins(settings),
        "chosen_seed": best.seed,
        "seeds": [_summary(outcome) for outcome in outcomes],
        "routings": msgspec.to_builtins(ways),
        "best_on_test": msgspec.to_builtins(judged),
    }
    evaluation = {
        "workload": f"rlalloc_simulator.training_workloads, from number {TEST}",
        "workloads": settings.test_workloads,
        "workloads_of_rivals": settings.rival_workloads,
        "confidence": settings.confidence,
        "jct_ratio": msgspec.to_builtins(ratios),
        "mean_over_workloads_of_rivals": {
            name: _means(results[name][: settings.rival_workloads]) for name in results
        },
    }
    manifest = new_manifest(sac.actor, None, training, evaluation, routing)
    _write(directory, version_files(sac.actor, sac.critics), manifest)
    return ratios


def _sac_of(seed: int, settings: PretrainSettings, folder: TrainingFolder) -> Sac[Actor]:
    sac = new_sac(settings, seed)
    folder.load_sac(seed, sac)
    return sac


def _where(
    seed: int, actor: Actor, settings: PretrainSettings, folder: TrainingFolder, parallel_map: ParallelMap
) -> tuple[Routing, dict[str, Interval]]:
    """Choose where a seed's network answers on the validation workloads, on which it was run everywhere already."""
    workloads = settings.validation_workloads
    names = {way: f"validation-way-{number}" for number, way in enumerate(WAYS)} | {EVERYWHERE: _everywhere(seed)}
    ways = {
        way: _run(name, served(ActorWeights.of(actor), way), VALIDATION, workloads, folder, parallel_map)
        for way, name in names.items()
    }
    base = _run(VALIDATION_BASE, BASELINE_NAME, VALIDATION, workloads, folder, parallel_map)
    best, ratios = best_of(ways, base, proven_later=True)
    return best or NOWHERE, described(ratios)


def _everywhere(seed: int) -> str:
    """Under what name a seed's results on the validation workloads are kept, its network answering everywhere."""
    return f"validation-seed-{seed}"


def _simulate_all(
    settings: PretrainSettings, folder: TrainingFolder, parallel_map: ParallelMap, report: ProgressCallback
) -> None:
    """Take decisions of the training workloads again, but for those of which there are advantages."""
    missing = [number for number in settings.numbers if folder.advantages(number) is None]
    before = settings.workloads - len(missing)
    found = parallel_map(advantages_of_workload, [(number, settings.advantages) for number in missing])
    for done, (number, advantages) in enumerate(zip(missing, found, strict=True), before + 1):
        folder.keep_advantages(number, advantages)
        report("simulating", SIMULATED * done / settings.workloads)


def advantages_of_workload(task: tuple[int, AdvantageSettings]) -> Advantages:
    """Take decisions of the workload of that number again."""
    number, settings = task
    return counterfactual_advantages(
        training_workload(number), policy_of(BASELINE_NAME), settings, np.random.default_rng((number, 3))
    )


def _learn_all(
    settings: PretrainSettings, folder: TrainingFolder, parallel_map: ParallelMap, report: ProgressCallback
) -> None:
    """Let all seeds learn that have not, several at a time."""
    report("learning", SIMULATED)
    missing = [seed for seed in range(settings.seeds) if folder.curves(seed) is None]
    for left, _ in zip(
        range(len(missing) - 1, -1, -1),
        parallel_map(learn_seed, [(settings, folder.path, seed) for seed in missing]),
        strict=True,
    ):
        report("learning", LEARNED - (LEARNED - SIMULATED) * left / settings.seeds)


def _validate(
    settings: PretrainSettings, folder: TrainingFolder, parallel_map: ParallelMap, report: ProgressCallback
) -> list[SeedOutcome]:
    """Run all seeds' policies on the validation workloads, and draw the curves so far."""
    report("validating", LEARNED)
    base = _run(VALIDATION_BASE, BASELINE_NAME, VALIDATION, settings.validation_workloads, folder, parallel_map)
    outcomes: list[SeedOutcome] = []
    for seed in range(settings.seeds):
        weights = ActorWeights.of(_sac_of(seed, settings, folder).actor)
        results = _run(_everywhere(seed), weights, VALIDATION, settings.validation_workloads, folder, parallel_map)
        ratio = jct_ratio(results, base, settings.confidence)
        outcomes.append(SeedOutcome(seed=seed, ratio=ratio, curves=folder.curves(seed) or {}))
        write_tensorboard(outcomes[-1], folder.path / "tensorboard")
        draw_curves(outcomes, folder.path / "curves.png")
        report("validating", LEARNED + (VALIDATED - LEARNED) * (seed + 1) / settings.seeds)
    return outcomes


def _run(
    name: str, contender: Contender, first: int, workloads: int, folder: TrainingFolder, parallel_map: ParallelMap
) -> list[WorkloadResult]:
    """Run a policy on the workloads from number ``first`` on, unless that is done."""
    results = folder.results(name)
    if results is None:
        results = list(parallel_map(run_numbered, [(contender, first + index) for index in range(workloads)]))
        folder.keep_results(name, results)
    return results


def run_numbered(task: tuple[Contender, int]) -> WorkloadResult:
    """Run a policy on the workload of that number."""
    contender, number = task
    return run_workload((contender, training_workload(number)))


def _over(results: Sequence[WorkloadResult], rival: Sequence[WorkloadResult], confidence: float) -> Interval:
    """Mean JCT over that of a rival, which may have run the first of the workloads only."""
    return jct_ratio(results[: len(rival)], rival, confidence)


def _summary(outcome: SeedOutcome) -> dict[str, object]:
    ends = {name: curve.values[-1] for name, curve in outcome.curves.items() if curve.values}
    return {"seed": outcome.seed, "validation_ratio": msgspec.to_builtins(outcome.ratio), **ends}


def _means(results: Sequence[WorkloadResult]) -> dict[str, float]:
    """Figures for people: seconds and GPU-hours over all workloads, whose time scales differ."""
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
