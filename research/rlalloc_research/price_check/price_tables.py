"""The tables that ``price-check`` prints."""

from collections.abc import Sequence

from rich.table import Table

from rlalloc.heuristics.known_gain import LEAST_GAIN
from rlalloc_research.price_check.checked_workloads import CheckedWorkload
from rlalloc_research.price_check.forced_sizes import RetakenDecision
from rlalloc_research.price_check.prediction_errors import chosen_gain, part_rows, price_rows


def price_tables(checked: Sequence[CheckedWorkload]) -> list[Table]:
    """Return the errors of each part, the price of a second of the cluster, and what the choice saved."""
    parts = _table(
        "Predicted and what came, means in s",
        "part",
        "sizes",
        "predicted",
        "came",
        "median error",
        "rank correlation",
    )
    prices = _table("Job-seconds others wait per second of the whole cluster", "jobs", "decisions", "charged", "came")
    gains = _table("Saved by the size of the least predicted cost, s a decision", "decisions", "predicted", "came")
    for name, urgency, decisions in _groups(checked):
        group = (name, "yes" if urgency else "no")
        for part in part_rows(decisions):
            seconds = (f"{each:,.0f}" for each in (part.predicted_s, part.came_s, part.median_error_s))
            parts.add_row(*group, part.part, str(part.sizes), *seconds, f"{part.rank_correlation:.2f}")
        for row in price_rows(decisions):
            prices.add_row(
                *group, row.jobs, str(row.decisions), f"{row.charged:.1f}", f"{row.came:.1f} ± {row.error:.1f}"
            )
        came, error, predicted = chosen_gain(decisions, LEAST_GAIN)
        gains.add_row(*group, str(len(decisions)), f"{predicted:,.0f}", f"{came:,.0f} ± {error:,.0f}")
    return [parts, prices, gains]


def _groups(checked: Sequence[CheckedWorkload]) -> list[tuple[str, bool, list[RetakenDecision]]]:
    """Decisions by scenario and urgency, all scenarios last."""
    by_group: dict[tuple[str, bool], list[RetakenDecision]] = {}
    for each in checked:
        for name in (each.scenario, "all"):
            by_group.setdefault((name, each.urgency), []).extend(each.decisions)
    ordered = sorted(by_group.items(), key=lambda item: item[0][0] == "all")
    return [(name, urgency, decisions) for (name, urgency), decisions in ordered if decisions]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in ("workload", "urgency", *columns):
        table.add_column(column, justify="left" if column in ("workload", "urgency", "part", "jobs") else "right")
    return table
