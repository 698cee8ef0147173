"""One row for each log and each set of assumptions: jobs killed for their memory, and what is given back."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rlalloc.progress import ProgressCallback
from rlalloc.usage.trimming_rules import TrimmingSection
from rlalloc.usage.usage_replay import LoggedUse, ReplayFigures, UsageReplay
from rlalloc_research.undeclared_needs.logged_jobs import LOGS
from rlalloc_research.undeclared_needs.measured_use import SIZES, measured_jobs, requests_for, with_requests
from rlalloc_research.undeclared_needs.true_needs import VARIED, TrueNeeds


class NeedsRow(NamedTuple):
    """What trimming did to the jobs of one log under one set of assumptions, all seeds together."""

    log: str
    assumed: str
    figures: ReplayFigures


def needs_rows(
    data: Path, logs: tuple[str, ...], last: int, seeds: int, rules: TrimmingSection, report: ProgressCallback
) -> Iterator[NeedsRow]:
    """Replay each log under each set of assumptions; the first fifth is not counted. Raises HistoryError."""
    done, all_of = 0, len(logs) * len(VARIED) * seeds
    for log in logs:
        jobs = LOGS[log](data, last)
        for name, assumed in VARIED.items():
            total = ReplayFigures()
            for seed in range(seeds):
                report(f"{log}: {name}", done / all_of)
                truth = TrueNeeds(jobs, data / "synergy" / "cpu_mem_sensitivity_extracted.json", assumed, seed)
                total.add(UsageReplay(truth.jobs, truth, rules, len(jobs) // 5).run())
                done += 1
            yield NeedsRow(log, name, total)


def measured_rows(
    logs: Sequence[Path], last: int, skip: float, rules: TrimmingSection, report: ProgressCallback
) -> Iterator[NeedsRow]:
    """Replay logs with the use that they measured; the part ``skip`` is not counted. Raises HistoryError."""
    for place, path in enumerate(logs):
        jobs = measured_jobs(path, last)
        for name, requests in requests_for(jobs).items():
            for stands_for_a_gpu, sized in SIZES.items():
                assumed = f"{name}; a {stands_for_a_gpu} as GPU"
                report(f"{path.name}: {assumed}", place / len(logs))
                made = with_requests(jobs, requests, sized)
                figures = UsageReplay(made, LoggedUse(made), rules, int(skip * len(made))).run()
                yield NeedsRow(path.name.split(".")[0], assumed, figures)
