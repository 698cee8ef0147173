"""Wiring of ``rlalloc evaluate``: names and files in, runs side by side, tables and a figure out."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, get_args

import msgspec
import torch

from rlalloc.errors import PolicyError, RlallocError
from rlalloc.policies import PolicyStore
from rlalloc_simulator.comparison.compared_policy import REFERENCE, ComparedPolicy
from rlalloc_simulator.parallel import processes
from rlalloc_simulator.progress import ProgressCallback, part_of
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_trainer.evaluation.compared_policies import COMPARISON_POLICIES, SHIPPED, policy_to_compare
from rlalloc_trainer.evaluation.paired_comparison import Comparison
from rlalloc_trainer.evaluation.result_tables import Table, served_table, tables
from rlalloc_trainer.evaluation.scenario_runs import (
    AS_USUAL,
    SETTINGS,
    Conditions,
    Results,
    Setting,
    WorkloadKey,
    run_scenarios,
)
from rlalloc_trainer.evaluation.scenarios import LOADS, Scenario, Split, scenario_of_file, scenarios
from rlalloc_trainer.evaluation.site_choice import CHOICES, CHOSEN, with_choice
from rlalloc_trainer.evaluation.targets import Target, targets

QUICK_LOADS: Final = (0.6, 1.0, 1.5)
KEPT: Final = "workloads"
CHOOSING: Final = 0.4
"""Of the time of an evaluation, where a site chooses first: the progress bar's estimate."""


class EvaluationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``rlalloc evaluate``.

    The first of ``policies`` is judged; if it is alone, against all of COMPARISON_POLICIES. ``output`` gets the
    tables, the figure and the kept runs. ``files`` are workloads to compare on too, ``only`` names of scenarios to
    keep.
    """

    policies: tuple[str, ...] = (SHIPPED,)
    philly: Path | None = None
    files: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    split: Split = "test"
    loads: tuple[float, ...] | None = None
    settings: tuple[str, ...] | None = None
    conditions: Conditions = AS_USUAL
    quick: bool = False
    store: Path | None = None
    output: Path = Path("evaluation")
    workers: int = 2


class Evaluated(msgspec.Struct, frozen=True):
    """What came out: the tables for people, the targets, and what was written."""

    workloads: int
    tables: list[Table]
    targets: list[Target]
    written: list[Path]


def evaluate(
    settings: EvaluationSettings,
    report: ProgressCallback,
    policy_of: Callable[[str, PolicyStore | None], ComparedPolicy] = policy_to_compare,
) -> Evaluated:
    """Run what has not been run yet, and write and return the result. ``policy_of`` finds a policy by its name.

    Raises PolicyError for a policy, WorkloadError for a scenario or an option, RlallocError where a file cannot be
    written.
    """
    torch.set_num_threads(1)
    store = None if settings.store is None else PolicyStore(settings.store)
    policies = {name: policy_of(name, store) for name in _names(settings)}
    chosen = _settings(settings)
    # Ratios are of REFERENCE with the order of the queue as it is.
    needed = list(dict.fromkeys(("sizes", *chosen)))
    compared_on = _scenarios(settings)
    loads = settings.loads or (QUICK_LOADS if settings.quick else LOADS)
    judged = settings.policies[0]
    more: list[Table] = []
    with processes(settings.workers) as parallel_map:

        def run(
            on: Sequence[Scenario], names: Iterable[str], report: ProgressCallback
        ) -> list[tuple[WorkloadKey, Results]]:
            compared = {name: policies[name] for name in names}
            kept = settings.output / KEPT
            return run_scenarios(on, loads, compared, needed, kept, parallel_map, report, settings.conditions)

        if not judged.startswith(CHOSEN):
            workloads = run(compared_on, policies, report)
        else:
            policy = judged.removeprefix(CHOSEN)
            served_by = [name for name in policies if name in (policy, *CHOICES)]
            seen = run(_to_choose_by(settings, compared_on), served_by, part_of(report, 0.0, CHOOSING))
            workloads = run(compared_on, policies, part_of(report, CHOOSING, 1.0))
            workloads, served = with_choice(workloads, seen, policy)
            more.append(served_table(served))
    comparison = Comparison(workloads)
    shown = [_titled(table, settings) for table in (*tables(comparison, judged), *more)]
    result = Evaluated(len(workloads), shown, targets(comparison, judged), [])
    written = _write(settings, comparison, judged, result)
    return msgspec.structs.replace(result, written=written)


def _names(settings: EvaluationSettings) -> list[str]:
    """Return whom to run: also what a site may choose. Raises PolicyError, WorkloadError."""
    first, *others = settings.policies
    if any(name.startswith(CHOSEN) for name in others):
        raise PolicyError(f"{CHOSEN} goes in front of the first policy only: it is the one that is judged")
    names = [*others, *(() if others else COMPARISON_POLICIES)]
    if first.startswith(CHOSEN):
        if settings.split == "validation":
            raise WorkloadError(f"--weeks validation: {CHOSEN} chooses by these; judge it on test weeks")
        names = [*names, *CHOICES]
    return list(dict.fromkeys((first.removeprefix(CHOSEN), *names, REFERENCE)))


def _scenarios(settings: EvaluationSettings) -> list[Scenario]:
    known: list[Scenario] = [
        *scenarios(settings.split, settings.philly, quick=settings.quick),
        *(scenario_of_file(path.stem, path) for path in settings.files),
    ]
    names = [scenario.name for scenario in known]
    if unknown := set(settings.only) - set(names):
        raise WorkloadError(f"--only {min(unknown)}: write one of {', '.join(names)}")
    return [scenario for scenario in known if not settings.only or scenario.name in settings.only]


def _to_choose_by(settings: EvaluationSettings, compared_on: Sequence[Scenario]) -> list[Scenario]:
    """Return the validation weeks of what is compared on. A file has none: its pieces choose one for the other."""
    names = {scenario.name for scenario in compared_on}
    return [each for each in scenarios("validation", settings.philly, quick=settings.quick) if each.name in names]


def _settings(settings: EvaluationSettings) -> Sequence[Setting]:
    if settings.settings is None:
        return ("sizes", "urgency") if settings.quick else tuple(SETTINGS)
    if unknown := set(settings.settings) - set(SETTINGS):
        raise WorkloadError(f"--settings {min(unknown)}: write one or more of {', '.join(get_args(Setting))}")
    return [setting for setting in SETTINGS if setting in settings.settings]


def _titled(table: Table, settings: EvaluationSettings) -> Table:
    """Name in the title what policies know of run times and how limits are chosen, where that is not the usual."""
    if settings.conditions == AS_USUAL:
        return table
    known = f"{table.title} (run times: {settings.conditions.knowledge}, limits: {settings.conditions.limits})"
    return msgspec.structs.replace(table, title=known)


def _write(settings: EvaluationSettings, comparison: Comparison, judged: str, result: Evaluated) -> list[Path]:
    from rlalloc_trainer.evaluation.evaluation_figure import draw

    text = "\n".join(table.markdown() for table in result.tables)
    content = {
        "settings": settings,
        "targets": result.targets,
        "tables": result.tables,
        "workloads": [
            {
                "scenario": key.scenario.name,
                "week": key.week,
                "part": key.part,
                "load": key.load,
                "results": [
                    {"policy": name, "setting": setting, "figures": figures}
                    for (name, setting), figures in results.items()
                ],
            }
            for key, results in comparison.workloads
        ],
    }
    files = {
        "evaluation.md": text.encode(),
        "evaluation.json": msgspec.json.format(msgspec.json.encode(content, enc_hook=str)) + b"\n",
        "evaluation.png": draw(comparison, judged),
    }
    for name, data in files.items():
        path = settings.output / name
        try:
            path.write_bytes(data)
        except OSError as err:
            raise RlallocError(f"{path}: {err.strerror}; name an --output folder that you may write to") from err
    return [settings.output / name for name in files]
