"""Paired statistics and targets, on figures that can be followed by hand."""

import math
from itertools import product

import msgspec
import pytest

from rlalloc_trainer.evaluation.evaluation_figure import draw
from rlalloc_trainer.evaluation.paired_comparison import LEAST_JOBS, Comparison
from rlalloc_trainer.evaluation.result_tables import tables
from rlalloc_trainer.evaluation.scenario_runs import Results, Setting, WorkloadKey
from rlalloc_trainer.evaluation.targets import targets
from tests.trainer.evaluation.example_results import figures, key


def compared(ratios: dict[str, dict[float, float]], weeks: int = 4) -> Comparison:
    """Each policy by JCT over that as requested at each load, in every week alike; urgency takes a fifth off."""
    workloads = []
    for scenario in ("one", "other"):
        for week in range(weeks):
            for load in next(iter(ratios.values())):
                base_s = 1000.0 * (1 + week) * load
                results: Results = {}
                for name, by_load in {"as-requested": dict.fromkeys((0.6, 1.0, 1.5), 1.0), **ratios}.items():
                    results[name, "sizes"] = figures(base_s * by_load[load])
                    results[name, "urgency"] = figures(0.8 * base_s * by_load[load])
                workloads.append((key(scenario, week, load), results))
    return Comparison(workloads)


def test_ratios_are_paired_and_weeks_count_alike() -> None:
    """A workload a thousand times as long counts no more; two windows of a week are one week."""
    workloads = [
        (key("one", 0, 1.0, 0), {("a", "sizes"): figures(1.0), ("b", "sizes"): figures(2.0)}),
        (key("one", 0, 1.0, 1), {("a", "sizes"): figures(1000.0), ("b", "sizes"): figures(2000.0)}),
        (key("one", 1, 1.0), {("a", "sizes"): figures(8.0), ("b", "sizes"): figures(1.0)}),
    ]
    ratio = Comparison(workloads).ratio(("a", "sizes"), ("b", "sizes"))  # type: ignore[arg-type]
    assert ratio.estimate == pytest.approx(math.sqrt(0.5 * 8.0))
    assert ratio.low == pytest.approx(0.5)
    assert ratio.high == pytest.approx(8.0)


def test_scenarios_count_alike_however_many_weeks_they_have() -> None:
    workloads = [
        (key("one", week, 1.0), {("a", "sizes"): figures(0.5), ("b", "sizes"): figures(1.0)}) for week in range(9)
    ]
    workloads += [(key("two", 0, 1.0), {("a", "sizes"): figures(2.0), ("b", "sizes"): figures(1.0)})]
    both = Comparison(workloads)  # type: ignore[arg-type]
    assert both.ratio(("a", "sizes"), ("b", "sizes")).estimate == pytest.approx(1.0)
    one = both.ratio(("a", "sizes"), ("b", "sizes"), scenarios=["one"])
    assert (one.estimate, one.low, one.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_worst_user_is_sought_over_all_workloads_and_by_enough_jobs() -> None:
    """Ada loses a fifth over both workloads; Bob tripled, with too few jobs to count."""
    before = {"ada": (LEAST_JOBS, 100.0), "bob": (1, 100.0), "eve": (LEAST_JOBS, 100.0)}
    after_one = {"ada": (LEAST_JOBS, 200.0), "bob": (1, 300.0), "eve": (LEAST_JOBS, 50.0)}
    after_two = {"ada": (LEAST_JOBS, 40.0), "bob": (1, 300.0), "eve": (LEAST_JOBS, 50.0)}
    workloads = [
        (key("one", week, 1.0), {("p", "sizes"): figures(1.0, after), ("q", "sizes"): figures(1.0, before)})
        for week, after in enumerate((after_one, after_two))
    ]
    comparison = Comparison(workloads)  # type: ignore[arg-type]
    worst = comparison.worst_user(("p", "sizes"), ("q", "sizes"))
    assert worst is not None
    assert worst[0] == pytest.approx(1.2)
    assert worst[1] == "ada of one at load 1"
    assert comparison.worst_user(("p", "sizes"), ("q", "sizes"), loads=[0.5]) is None


GOOD = {
    "shipped": {0.6: 0.48, 1.0: 0.45, 1.5: 0.40},
    "price-ef": {0.6: 0.50, 1.0: 0.47, 1.5: 0.46},
    "marginal-gain": {0.6: 0.60, 1.0: 0.60, 1.5: 0.60},
    "efficiency-adaptive": {0.6: 0.60, 1.0: 0.60, 1.5: 0.60},
}
WORSE_AT_LOW_LOAD = GOOD | {"shipped": {0.6: 0.51, 1.0: 0.45, 1.5: 0.40}}
BEHIND = GOOD | {"shipped": {0.6: 0.65, 1.0: 0.65, 1.5: 0.65}}


@pytest.mark.parametrize(
    ("ratios", "met"),
    [
        (GOOD, [True, True, True, True, True, True, True, True, True, True, True]),
        (WORSE_AT_LOW_LOAD, [True, True, True, True, False, True, True, True, True, True, True]),
        (BEHIND, [False, False, False, False, False, False, False, False, True, False, False]),
    ],
    ids=["all met", "behind price-EF at a load", "behind everybody"],
)
def test_targets(ratios: dict[str, dict[float, float]], met: list[bool]) -> None:
    found = targets(compared(ratios), "shipped")
    assert [target.met for target in found] == met, [(target.wanted, target.figure) for target in found]


def test_behind_in_a_single_scenario_only_where_it_is_sure() -> None:
    """Ahead over all, a twentieth behind in every week of one; then in half of its weeks only."""
    wanted = "in no scenario worse than a compared policy by the whole interval, with sizes or with urgency"

    def met(behind_in: int) -> bool | None:
        workloads: list[tuple[WorkloadKey, Results]] = []
        for scenario, week in product(("one", "other"), range(4)):
            jct_s = 1.05 if scenario == "one" and week < behind_in else 0.7 if scenario == "other" else 0.99
            workloads.append(
                (key(scenario, week, 1.0), {("a", "sizes"): figures(jct_s), ("b", "sizes"): figures(1.0)})
            )
        return {target.wanted: target for target in targets(Comparison(workloads), "a")}[wanted].met

    assert [met(4), met(2), met(0)] == [False, True, True]


def test_a_single_week_is_neither_ahead_nor_behind_for_sure() -> None:
    one = compared({"shipped": {1.0: 2.0}}, weeks=1)
    assert targets(one, "shipped")[-1].met is None


def test_what_was_not_run_is_neither_met_nor_missed() -> None:
    alone = compared({"shipped": {1.0: 0.5}}, weeks=2)
    by_name = {target.wanted: target for target in targets(alone, "shipped")}
    assert by_name["mean JCT ratio at most 0.94 versus marginal-gain"].met is None
    assert by_name["mean JCT ratio at most 1.01 versus price-ef at each load"].figure == "not measured"
    assert by_name["not worse than any compared policy, over all"].met is True


def test_tables_and_figure_show_every_policy_and_setting() -> None:
    comparison = compared(GOOD)
    made = tables(comparison, "shipped")
    overview = made[0]
    assert [row[0] for row in overview.rows] == [
        "shipped", "price-ef", "marginal-gain", "efficiency-adaptive", "as-requested",
    ]  # fmt: skip
    assert overview.rows[0][1:5] == ("0.442 [0.442, 0.442]", "0.480", "0.450", "0.400")
    assert made[1].rows[-1][1] == "0.800 [0.800, 0.800]"  # as requested with urgency
    markdown = overview.markdown().splitlines()
    assert markdown[2].startswith("| policy | JCT, all | 0.6 |")
    assert len(markdown) == 4 + len(overview.rows)
    assert draw(comparison, "shipped").startswith(b"\x89PNG")


def test_settings_are_sides_of_their_own() -> None:
    setting: Setting = "urgency"
    comparison = compared(GOOD)
    assert comparison.ratio(("shipped", setting), ("shipped", "sizes")).estimate == pytest.approx(0.8)
    with pytest.raises(KeyError):
        comparison.ratio(("nobody", "sizes"), ("shipped", "sizes"))


def test_further_figures_are_means_of_scenarios_where_there_are_any() -> None:
    def with_further(value: float | None) -> Results:
        return {("a", "sizes"): msgspec.structs.replace(figures(1.0), further={"mine": value, "none": None})}

    workloads = [
        (key("one", 0, 1.0), with_further(1.0)),
        (key("one", 1, 1.0), with_further(3.0)),
        (key("one", 2, 1.0), with_further(None)),
        (key("other", 0, 1.0), with_further(8.0)),
    ]
    comparison = Comparison(workloads)
    assert comparison.further(("a", "sizes")) == {"mine": 5.0, "none": None}
