"""``rlalloc history show``: the site's past jobs in tables."""

from collections.abc import Sequence

from rich.table import Table

from rlalloc.history.history_summary import QUANTILES, HistorySummary
from rlalloc.local_times import duration, local_time
from rlalloc_cli.terminal import CONSOLE


def print_summary(found: HistorySummary, unread: str) -> None:
    """Print what the history says; ``unread`` says how far it is read where it is not yet."""
    CONSOLE.print(f"{found.jobs:,} past jobs of {found.users:,} users and {found.accounts:,} accounts")
    CONSOLE.print(f"ended between {local_time(found.first_end_s)} and {local_time(found.last_end_s)}")
    if unread:
        CONSOLE.print(unread)
    known = {
        "their peak memory": found.with_memory_use,
        "their CPU time": found.with_cpu_use,
        "their script": found.with_script,
    }
    CONSOLE.print(f"known of them: {', '.join(f'{what} {count / found.jobs:.0%}' for what, count in known.items())}")
    _print_spread(found)
    _print_limits(found)
    _print_counts("states", ("state", "jobs", "part"), found.states, found.jobs)
    _print_sizes(found)
    _print_counts("jobs ended", ("month", "jobs", "part"), found.by_month, found.jobs)


def _print_spread(found: HistorySummary) -> None:
    table = _table("spread", "", *(f"{quantile:.0%}" for quantile in QUANTILES))
    rows: tuple[tuple[str, Sequence[str]], ...] = (
        ("wait", [duration(value) for value in found.wait_s]),
        ("run time", [duration(value) for value in found.run_s]),
        ("time limit", [duration(value) for value in found.limit_s]),
        ("limit / run time", [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in found.over_asking]),
    )
    for name, values in rows:
        table.add_row(name, *(values or ["-"] * len(QUANTILES)))
    CONSOLE.print(table)


def _print_limits(found: HistorySummary) -> None:
    if found.commonest_limit_s is not None:
        CONSOLE.print(
            f"{found.part_asking_commonest_limit:.1%} of the jobs with a limit ask exactly "
            f"{duration(found.commonest_limit_s)}, the commonest one"
        )
    if found.rank_correlation is not None:
        CONSOLE.print(f"rank correlation of limit and run time: {found.rank_correlation:.3f}")
    if found.without_limit:
        CONSOLE.print(f"{found.without_limit:,} jobs have no time limit, or none that is known")


def _print_sizes(found: HistorySummary) -> None:
    what = "GPU" if found.gpu_jobs else "CPU"
    table = _table("sizes", f"{what}s", "jobs", "part", f"{what} hours", "part")
    hours = sum(each.hours for each in found.sizes) or 1.0
    largest = max((each.at_most or 0 for each in found.sizes), default=0)
    for each in found.sizes:
        table.add_row(
            _class(each.at_most, largest),
            f"{each.jobs:,}",
            f"{each.jobs / found.jobs:.1%}",
            f"{each.hours:,.0f}",
            f"{each.hours / hours:.1%}",
        )
    CONSOLE.print(table)


def _class(at_most: int | None, largest: int) -> str:
    if at_most is None:
        return f"over {largest}"
    return f"up to {at_most}" if at_most else "none"


def _print_counts(title: str, headings: Sequence[str], counts: dict[str, int], jobs: int) -> None:
    table = _table(title, *headings)
    for name, count in counts.items():
        table.add_row(name, f"{count:,}", f"{count / jobs:.1%}")
    CONSOLE.print(table)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table
