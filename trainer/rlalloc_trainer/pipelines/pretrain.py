"""The shipped policy, from nothing: SAC on simulated workloads, chosen on some, reported on others.

Decisions of the baseline heuristic are taken again, and SAC learns from their advantages, with several seeds. The
network that does best on the validation workloads, with its best routing there, runs test workloads on which nothing
was chosen. It answers only if it is significantly ahead of the heuristic on those.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np

from rlalloc.errors import PolicyError
from rlalloc.heuristics import BASELINE, BASELINE_NAME
from rlalloc.policy.policies import EVERYWHERE, MANIFEST_FILE, NOWHERE, Manifest, Routing
from rlalloc.progress import ProgressCallback
from rlalloc_agent.actor import Actor
from rlalloc_simulator.comparison.compared_policy import ComparedPolicy, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import Interval, jct_ratio
from rlalloc_simulator.comparison.runner import Run, run_all
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.parallel import ParallelMap, processes
from rlalloc_simulator.training_workloads import TEST, VALIDATION, TrainingWorkload, training_workload
from rlalloc_trainer.advantages.counterfactual import Advantages, AdvantageSettings, counterfactual_advantages
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_trainer.pipelines.learning_curves import draw_curves, write_tensorboard
from rlalloc_trainer.pipelines.pretrain_seed import PretrainSettings, learn_seed, new_sac
from rlalloc_trainer.pipelines.training_folder import SeedOutcome, TrainingFolder
from rlalloc_trainer.promotion.held_out_evidence import GATE_HEURISTICS
from rlalloc_trainer.promotion.policy_versions import new_manifest, version_files
from rlalloc_trainer.promotion.routing_choice import ROUTINGS, best_of, described, served
from rlalloc_trainer.sac.soft_actor_critic import Sac

Name = TypeVar("Name")

VERSION: Final = "shipped-10"
TRAINING_FOLDER: Final = "training"
SIMULATED: Final = 0.44
LEARNED: Final = 0.5
VALIDATED: Final = 0.64
TESTING: Final = 0.78
"""Of the time of the whole when each is done, or begins: the progress bar's estimate."""


def pretrain(
    settings: PretrainSettings, directory: Path, report: ProgressCallback, workers: int = 2
) -> dict[str, Interval]:
    """Make a policy version in ``directory``; return its mean JCT ratios versus GATE_HEURISTICS on test workloads.

    What is done is kept in ``directory``/training: a training that was interrupted goes on there, to the same bytes.
    The work is spread over ``workers`` processes, whatever their number with the same result. Raises PolicyError if
    another training is there.
    """
    if settings.seeds < 1:
        raise PolicyError("nothing was trained: ask for at least one seed")
    folder = TrainingFolder(directory / TRAINING_FOLDER, settings)
    with processes(workers) as parallel_map:
        _simulate_all(settings, folder, parallel_map, report)
        _learn_all(settings, folder, parallel_map, report)
        outcomes = _validate(settings, folder, parallel_map, report)
        best = min(outcomes, key=lambda outcome: outcome.ratio.estimate)
        sac = _sac_of(best.seed, settings, folder)
        report("choosing a routing", VALIDATED)
        routing, routings = _where(sac.actor, settings, folder, parallel_map)
        results = _test(served(LearnedPolicy.of(sac.actor), routing), settings, folder, parallel_map, report)
    judged = jct_ratio(results[VERSION], results[BASELINE_NAME], settings.confidence)
    if not judged.high < 1.0:  # not proven: the heuristic answers, except for other objectives
        routing = NOWHERE
        results[VERSION] = results[BASELINE_NAME]
    ratios = {  # other heuristics than the baseline ran the first of the workloads only
        name: jct_ratio(results[VERSION][: len(results[name])], results[name], settings.confidence)
        for name in GATE_HEURISTICS
    }
    training = {
        "settings": msgspec.to_builtins(settings),
        "chosen_seed": best.seed,
        "seeds": [_summary(outcome) for outcome in outcomes],
        "routings": msgspec.to_builtins(routings),
        "best_on_test": msgspec.to_builtins(judged),
    }
    evaluation = {
        "workload": f"rlalloc_simulator.training_workloads, from number {TEST}",
        "workloads": settings.test_workloads,
        "comparison_workloads": settings.comparison_workloads,
        "confidence": settings.confidence,
        "jct_ratio": msgspec.to_builtins(ratios),
        "mean_over_comparison_workloads": {
            name: _means(found[: settings.comparison_workloads]) for name, found in results.items()
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
    actor: Actor, settings: PretrainSettings, folder: TrainingFolder, parallel_map: ParallelMap
) -> tuple[Routing, dict[str, Interval]]:
    """Choose a network's routing on the validation workloads, on which it was run everywhere already."""
    policy = LearnedPolicy.of(actor)
    routings = {routing: served(policy, routing) for routing in (NOWHERE, *ROUTINGS)}
    results = _run(routings, VALIDATION, settings.validation_workloads, folder, parallel_map)
    base = results.pop(NOWHERE)
    best, ratios = best_of(results, base, proven_later=True)
    return best or NOWHERE, described(ratios)


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
        training_workload(number), BASELINE, settings, np.random.default_rng((number, 3))
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
    outcomes: list[SeedOutcome] = []
    for seed in range(settings.seeds):
        policy = LearnedPolicy.of(_sac_of(seed, settings, folder).actor)
        routings = {NOWHERE: served(policy, NOWHERE), EVERYWHERE: policy}
        results = _run(routings, VALIDATION, settings.validation_workloads, folder, parallel_map)
        ratio = jct_ratio(results[EVERYWHERE], results[NOWHERE], settings.confidence)
        outcomes.append(SeedOutcome(seed=seed, ratio=ratio, curves=folder.curves(seed) or {}))
        write_tensorboard(outcomes[-1], folder.path / "tensorboard")
        draw_curves(outcomes, folder.path / "curves.png")
        report("validating", LEARNED + (VALIDATED - LEARNED) * (seed + 1) / settings.seeds)
    return outcomes


def _test(
    policy: ComparedPolicy,
    settings: PretrainSettings,
    folder: TrainingFolder,
    parallel_map: ParallelMap,
    report: ProgressCallback,
) -> dict[str, list[WorkloadResult]]:
    """Run the policy, as VERSION, and the heuristics on unseen workloads: those other than the baseline on fewer."""
    what = "testing on unseen workloads"
    report(what, TESTING)
    policies: dict[str, ComparedPolicy] = {
        BASELINE_NAME: HeuristicPolicy(BASELINE_NAME),
        VERSION: policy,
        **{name: HeuristicPolicy(name) for name in GATE_HEURISTICS},
    }
    results: dict[str, list[WorkloadResult]] = {}
    for number, (name, each) in enumerate(policies.items(), 1):
        of_all = name in (BASELINE_NAME, VERSION)
        workloads = settings.test_workloads if of_all else settings.comparison_workloads
        results |= _run({name: each}, TEST, workloads, folder, parallel_map)
        report(what, TESTING + (1 - TESTING) * number / len(policies))
    return results


def _run(
    policies: Mapping[Name, ComparedPolicy],
    first: int,
    workloads: int,
    folder: TrainingFolder,
    parallel_map: ParallelMap,
) -> dict[Name, list[WorkloadResult]]:
    """Run policies on the workloads from number ``first`` on, but for what is done."""
    sources = [TrainingWorkload(first + index) for index in range(workloads)]
    runs = {name: Run(policy) for name, policy in policies.items()}
    return run_all(runs, sources, parallel_map, cache=folder.results)


def _summary(outcome: SeedOutcome) -> dict[str, object]:
    ends = {name: curve.values[-1] for name, curve in outcome.curves.items() if curve.values}
    return {"seed": outcome.seed, "validation_ratio": msgspec.to_builtins(outcome.ratio), **ends}


def _means(results: Sequence[WorkloadResult]) -> dict[str, float]:
    """Figures for people: seconds and GPU-hours over all workloads, whose time scales differ."""
    return {
        "jct_s": float(np.mean([result.jct_s for result in results])),
        "wait_s": float(np.mean([result.wait_s for result in results])),
        "gpu_hours": float(np.mean([result.gpu_hours for result in results])),
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
