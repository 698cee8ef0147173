"""Wiring of ``make validate``: writes a workload, runs it on real sites and in the engine, and compares."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec
import torch

from rlalloc.heuristics import Heuristic
from rlalloc.policy.policies import Routing
from rlalloc.progress import ProgressCallback
from rlalloc.urgency import UrgencyRules
from rlalloc_agent.served_policy import load_shipped
from rlalloc_simulator.workloads import Header, WorkloadJob, read_workload, write_workload
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_validation.chaos import Spread, spread_of
from rlalloc_validation.contention import contention
from rlalloc_validation.job_comparison import Compared, Figures, compare, figures_of, pairs_of
from rlalloc_validation.real_site import run_real
from rlalloc_validation.recorded_run import read_run
from rlalloc_validation.simulated_run import launch_s_of, simulate
from rlalloc_validation.validation_settings import (
    WORKLOAD_FILE,
    Mode,
    ValidationError,
    ValidationSettings,
    read_settings,
    write_settings,
)


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one command.

    ``spreads``   how far the engine deviates from itself, by mode
    ``launch_s``  the launch time that the engine assumed, by mode: measured in the other modes' runs
    ``again``     the real site against itself: shadow mode touches nothing, so both runs are of the same thing
    """

    settings: ValidationSettings
    compared: tuple[Compared, ...]
    spreads: tuple[Spread, ...]
    launch_s: tuple[float, ...]
    again: Figures | None

    @property
    def missed(self) -> tuple[str, ...]:
        """Targets that were missed, by mode."""
        return tuple(
            f"{each.mode}: {text}"
            for each in self.compared
            for text in each.figures.missed(float(self.settings.bf_interval_s))
        )


def prepare(folder: Path, settings: ValidationSettings) -> None:
    """Write settings and the contended workload into a new folder. Raises ValidationError, WorkloadError."""
    prepare_workload(folder, settings, *contention(settings))


def prepare_workload(folder: Path, settings: ValidationSettings, header: Header, jobs: Sequence[WorkloadJob]) -> None:
    """Write settings and a workload into a new folder, the settings last. Raises ValidationError, WorkloadError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValidationError(f"{folder} is not empty: name a new folder, or compare what is in it (--recorded)")
    except OSError as err:
        raise ValidationError(f"{folder}: {err.strerror}; name a folder that you may write to") from err
    write_workload(folder / WORKLOAD_FILE, header, jobs)
    write_settings(folder, settings)


def run_and_compare(
    folder: Path, settings: ValidationSettings, modes: Sequence[Mode], report: ProgressCallback
) -> Validated:
    """Run a new workload on real sites, then in the engine. Raises ValidationError, WorkloadError."""
    prepare(folder, settings)
    run_real(folder, modes, report)
    return compare_recorded(folder, modes, report)


def compare_recorded(folder: Path, modes: Sequence[Mode], report: ProgressCallback) -> Validated:
    """Compare the real runs of a folder with the engine's. Raises ValidationError, WorkloadError."""
    settings = read_settings(folder)
    header, jobs = read_workload(folder / WORKLOAD_FILE)
    policy = shipped_policy()
    runs = {mode: read_run(folder, mode) for mode in modes}
    measured_s = {mode: launch_s_of(header, jobs, settings, run) for mode, run in runs.items()}
    launch_s = {mode: _mean([measured_s[other] for other in modes if other != mode]) for mode in modes}
    compared, spreads = [], []
    for place, (mode, real) in enumerate(runs.items()):
        report(f"the engine, {mode}", place / len(runs))
        compared.append(compare(real, simulate(header, jobs, settings, real, policy, launch_s[mode])))
        spreads.append(spread_of(header, jobs, settings, real, policy, launch_s[mode]))
    report("done", 1.0)
    twice = "off" in runs and "shadow" in runs
    return Validated(
        settings=settings,
        compared=tuple(compared),
        spreads=tuple(spreads),
        launch_s=tuple(launch_s[mode] for mode in modes),
        again=figures_of(pairs_of(runs["off"], runs["shadow"])) if twice else None,
    )


def shipped_policy(routing: Routing | None = None) -> Heuristic:
    """The policy that the agent serves on a site without any of its own, always its mean. Raises PolicyError.

    Its network answers where its manifest says, unless ``routing`` says otherwise.
    """
    torch.set_num_threads(1)
    actor, manifest = load_shipped()
    return LearnedPolicy.of(actor, routing or manifest.routing).policy(UrgencyRules())


def _mean(values: Sequence[float]) -> float:
    """0 without values: with one mode alone there is no other run to measure in."""
    return fmean(values) if values else 0.0
