"""The table of figures: one row a figure, one column a policy; the terminal and the page print the same."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from rlalloc import local_times
from rlalloc_simulator.report.job_figures import Measures

DASH: Final = "–"  # noqa: RUF001 (an en dash is what it says)


class Row(NamedTuple):
    """A figure and how each policy's reads; ``group`` is what its row stands under."""

    group: str
    label: str
    cells: tuple[str, ...]


def rows(measures: Sequence[Measures]) -> list[Row]:
    """Return the rows, a cell for each of ``measures``."""
    made = []
    for group, figures in _FIGURES.items():
        for label, text_of in figures.items():
            made.append(Row(group, label, tuple(text_of(each) for each in measures)))
    for group in ("further", "terms"):
        names = getattr(measures[0], group) if measures else ()
        made.extend(
            Row(_TITLES[group], name, tuple(_number(getattr(each, group)[name]) for each in measures))
            for name in names
        )
    return made


def duration(seconds: float | None) -> str:
    """Seconds as ``1:02:03``; a dash for none."""
    return DASH if seconds is None else local_times.duration(seconds)


def _factor(value: float | None) -> str:
    return DASH if value is None else f"{value:,.2f}"


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:,.4g}"


def _share(value: float | None) -> str:
    return DASH if value is None else f"{value:.1%}"


_TITLES: Final = {"further": "further", "terms": "objective's terms [s a job]"}
_TextOf = Callable[[Measures], str]
_FIGURES: Final[Mapping[str, Mapping[str, _TextOf]]] = {
    "JCT [h:mm:ss]": {
        "mean": lambda of: duration(of.jct_s.mean),
        "p50": lambda of: duration(of.jct_s.p50),
        "p95": lambda of: duration(of.jct_s.p95),
        "p99": lambda of: duration(of.jct_s.p99),
    },
    "wait [h:mm:ss]": {
        "mean": lambda of: duration(of.wait_s.mean),
        "p50": lambda of: duration(of.wait_s.p50),
        "p95": lambda of: duration(of.wait_s.p95),
        "p99": lambda of: duration(of.wait_s.p99),
    },
    "bounded slowdown": {
        "mean": lambda of: _factor(of.bounded_slowdown.mean),
        "p50": lambda of: _factor(of.bounded_slowdown.p50),
        "p95": lambda of: _factor(of.bounded_slowdown.p95),
        "p99": lambda of: _factor(of.bounded_slowdown.p99),
    },
    "cluster": {
        "makespan [h:mm:ss]": lambda of: duration(of.makespan_s),
        "GPU-hours": lambda of: f"{of.gpu_hours:,.1f}",
        "GPUs held": lambda of: _share(of.gpu_use),
        "GPUs held while jobs come": lambda of: _share(of.gpu_use_arriving),
        "CPUs held": lambda of: _share(of.cpu_use),
        "memory held": lambda of: _share(of.mem_use),
        "fragmentation": lambda of: _share(of.fragmentation),
    },
    "jobs": {
        "that ran": lambda of: f"{of.ran:,} of {of.jobs:,}",
        "cancelled while waiting": lambda of: f"{of.cancelled_waiting:,}",
        "never ended": lambda of: f"{of.never_ended:,}",
        "timeouts": lambda of: f"{of.timeouts:,}",
        "out of memory": lambda of: f"{of.out_of_memory:,}",
        "requeues": lambda of: f"{of.requeues:,}",
    },
    "fairness": {
        "worst user over mean": lambda of: _factor(of.worst_user),
        "Jain's index": lambda of: DASH if of.jain_index is None else f"{of.jain_index:.3f}",
    },
}
