"""Wiring of ``rlalloc evaluate``: names and files in, runs side by side, tables and a figure out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, get_args

import msgspec
import torch

from rlalloc.errors import RlallocError
from rlalloc.policy.policies import PolicyStore
from rlalloc.progress import ProgressCallback
from rlalloc_simulator.comparison.compared_policy import REFERENCE, ComparedPolicy
from rlalloc_simulator.comparison.runner import RunSettings
from rlalloc_simulator.knowledge import LEVELS, Knowledge
from rlalloc_simulator.parallel import processes
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_trainer.evaluation.compared_policies import BASELINES, SHIPPED, policy_to_compare
from rlalloc_trainer.evaluation.never_worse import ConditionVerdict, verdicts
from rlalloc_trainer.evaluation.paired_comparison import Comparison
from rlalloc_trainer.evaluation.result_tables import Table, tables
from rlalloc_trainer.evaluation.scenario_runs import (
    AGAIN,
    LATE_AFTER_S,
    REPLICATES,
    SETTINGS,
    Extent,
    Setting,
    run_scenarios,
)
from rlalloc_trainer.evaluation.scenarios import LOADS, Scenario, Split, scenario_of_file, scenarios
from rlalloc_trainer.evaluation.targets import REPAIRED, Target, targets

KEPT: Final = "workloads"
USUAL_SETTINGS: Final[tuple[Setting, ...]] = ("sizes", "urgency")


class EvaluationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``rlalloc evaluate``.

    The first of ``policies`` is judged; all of BASELINES run, too, unless ``baselines`` is false. ``philly`` and
    ``pollux`` add scenarios that need files, ``files`` are workloads to compare on too. ``only`` names scenarios to
    keep, ``knowledge`` levels, ``most_weeks`` how many seeds or weeks of each scenario at most. ``late_after_s`` is
    as in ``RunSettings``: with None, sizes are decided when jobs come. The first policy, ``repaired`` and REFERENCE
    run each workload ``replicates`` times. ``output`` gets the tables, the figure and the kept runs.
    """

    policies: tuple[str, ...] = (SHIPPED,)
    baselines: bool = True
    philly: Path | None = None
    pollux: Path | None = None
    files: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    knowledge: tuple[Knowledge, ...] = LEVELS
    split: Split = "test"
    loads: tuple[float, ...] = LOADS
    settings: tuple[str, ...] = USUAL_SETTINGS
    late_after_s: float | None = LATE_AFTER_S
    most_weeks: int | None = None
    replicates: int = REPLICATES
    quick: bool = False
    store: Path | None = None
    output: Path = Path("evaluation")
    workers: int = 2


class Evaluated(msgspec.Struct, frozen=True):
    """What came out: the tables for people, verdicts and targets of the first policy, and what was written."""

    workloads: int
    tables: list[Table]
    verdicts: list[ConditionVerdict]
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
    names = dict.fromkeys((*settings.policies, *(BASELINES if settings.baselines else ()), REFERENCE))
    policies = {name: policy_of(name, store) for name in names}
    policies[AGAIN] = policies[REFERENCE]
    # What urgency gains is seen over as requested in the queue's own order.
    needed: dict[Setting, RunSettings] = {
        name: msgspec.structs.replace(SETTINGS[name], late_after_s=settings.late_after_s)
        for name in dict.fromkeys(("sizes", *_settings(settings)))
    }
    compared_on = _scenarios(settings)
    judged = settings.policies[0]
    extent = Extent(
        loads=settings.loads,
        levels=settings.knowledge,
        most_weeks=settings.most_weeks,
        often=(judged, REPAIRED, REFERENCE, AGAIN),
        by_gain=settings.policies,
        replicates=settings.replicates,
    )
    with processes(settings.workers) as parallel_map:
        workloads = run_scenarios(
            compared_on,
            extent,
            policies,
            needed,
            settings.output / KEPT,
            parallel_map,
            report,
        )
    if not workloads:
        levels = ", ".join(settings.knowledge)
        raise WorkloadError(f"--knowledge {levels}: no scenario is run with that; name others, or other scenarios")
    comparison = Comparison(workloads)
    found = tables(comparison, judged)
    result = Evaluated(len(workloads), found, verdicts(comparison, judged), targets(comparison, judged), [])
    written = _write(settings, comparison, judged, result)
    return msgspec.structs.replace(result, written=written)


def _scenarios(settings: EvaluationSettings) -> list[Scenario]:
    known: list[Scenario] = [
        *scenarios(settings.split, settings.philly, settings.pollux, quick=settings.quick),
        *(scenario_of_file(path.stem, path) for path in settings.files),
    ]
    names = [scenario.name for scenario in known]
    if unknown := set(settings.only) - set(names):
        raise WorkloadError(f"--only {min(unknown)}: write one of {'; '.join(names)}")
    return [scenario for scenario in known if not settings.only or scenario.name in settings.only]


def _settings(settings: EvaluationSettings) -> Sequence[Setting]:
    if unknown := set(settings.settings) - set(SETTINGS):
        raise WorkloadError(f"--settings {min(unknown)}: write one or more of {', '.join(get_args(Setting))}")
    return [setting for setting in SETTINGS if setting in settings.settings]


def _write(settings: EvaluationSettings, comparison: Comparison, judged: str, result: Evaluated) -> list[Path]:
    from rlalloc_trainer.evaluation.evaluation_figure import draw

    text = "\n".join(table.markdown() for table in result.tables)
    content = {
        "settings": settings,
        "verdicts": result.verdicts,
        "targets": result.targets,
        "tables": result.tables,
        "workloads": [
            {
                "scenario": key.scenario.name,
                "week": key.week,
                "knowledge": key.knowledge,
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
