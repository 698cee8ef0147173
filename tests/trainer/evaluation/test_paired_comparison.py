"""Paired statistics and the bar, on figures that can be followed by hand."""

import math

import msgspec
import pytest

from rlalloc_simulator.comparison.worst_users import LEAST_JOBS
from rlalloc_trainer.evaluation.evaluation_figure import draw
from rlalloc_trainer.evaluation.never_worse import verdicts
from rlalloc_trainer.evaluation.paired_comparison import Comparison
from rlalloc_trainer.evaluation.result_tables import tables
from rlalloc_trainer.evaluation.scenario_runs import Results, Setting, WorkloadKey
from rlalloc_trainer.evaluation.scenarios import MODEST_SITE
from rlalloc_trainer.evaluation.targets import targets
from tests.trainer.evaluation.example_results import figures, key

Workloads = list[tuple[WorkloadKey, Results]]


def compared(ratios: dict[str, float], weeks: int = 4) -> Comparison:
    """Each policy by JCT over that as requested, in every week alike; urgency takes a fifth off."""
    workloads: Workloads = []
    for scenario in ("one", "other"):
        for week in range(weeks):
            results: Results = {}
            for name, ratio in {**ratios, "as-requested": 1.0}.items():
                results[name, "sizes"] = figures(1000.0 * (1 + week) * ratio)
                results[name, "urgency"] = figures(800.0 * (1 + week) * ratio)
            workloads.append((key(scenario, week), results))
    return Comparison(workloads)


def test_ratios_are_paired_and_weeks_count_alike() -> None:
    """A workload a thousand times as long counts no more."""
    workloads: Workloads = [
        (key("one", 0), {("a", "sizes"): figures(1000.0), ("b", "sizes"): figures(2000.0)}),
        (key("one", 1), {("a", "sizes"): figures(8.0), ("b", "sizes"): figures(1.0)}),
    ]
    ratio = Comparison(workloads).ratio(("a", "sizes"), ("b", "sizes"))
    assert ratio.estimate == pytest.approx(math.sqrt(0.5 * 8.0))
    assert ratio.low == pytest.approx(0.5)
    assert ratio.high == pytest.approx(8.0)


def test_conditions_count_alike_however_many_weeks_they_have() -> None:
    """What is known makes a condition of its own, and so does a load."""
    workloads: Workloads = [
        (key("one", week), {("a", "sizes"): figures(0.5), ("b", "sizes"): figures(1.0)}) for week in range(9)
    ]
    workloads += [(key("one", 0, knowledge="truth"), {("a", "sizes"): figures(2.0), ("b", "sizes"): figures(1.0)})]
    both = Comparison(workloads)
    assert [str(condition) for condition in both.conditions] == ["one, history", "one, truth"]
    assert both.ratio(("a", "sizes"), ("b", "sizes")).estimate == pytest.approx(1.0)
    one = both.under(both.conditions[0]).ratio(("a", "sizes"), ("b", "sizes"))
    assert (one.estimate, one.low, one.high) == pytest.approx((0.5, 0.5, 0.5))
    assert str(key("one", 0, 0.8).condition) == "one, history at load 0.8"


def test_the_worst_user_of_each_workload_counts() -> None:
    """Ada's JCT doubled in one week and halved in the other; Bob's tripled, with too few jobs to count."""
    before = {"ada": (LEAST_JOBS, 100.0), "bob": (1, 100.0), "eve": (LEAST_JOBS, 100.0)}
    after_one = {"ada": (LEAST_JOBS, 200.0), "bob": (1, 300.0), "eve": (LEAST_JOBS, 50.0)}
    after_two = {"ada": (LEAST_JOBS, 40.0), "bob": (1, 300.0), "eve": (LEAST_JOBS, 50.0)}
    workloads: Workloads = [
        (key("one", week), {("p", "sizes"): figures(1.0, after), ("q", "sizes"): figures(1.0, before)})
        for week, after in enumerate((after_one, after_two))
    ]
    comparison = Comparison(workloads)
    worst = comparison.worst_user(("p", "sizes"), ("q", "sizes"))
    assert worst == pytest.approx((math.sqrt(2.0 * 0.5), 2.0))
    assert Comparison([]).worst_user(("p", "sizes"), ("q", "sizes")) is None


def test_who_ran_less_often_than_as_requested_has_no_worst_user() -> None:
    """One run against the mean of several: the largest ratio of its users would be chance."""
    often = msgspec.structs.replace(figures(1.0, {"ada": (3 * LEAST_JOBS, 100.0)}), replicates=3)
    once = figures(1.0, {"ada": (LEAST_JOBS, 300.0)})
    results: Results = {("p", "sizes"): once, ("q", "sizes"): often, ("r", "sizes"): often}
    comparison = Comparison([(key("one", 0), results)])
    assert comparison.worst_user(("p", "sizes"), ("q", "sizes")) is None
    assert comparison.worst_user(("r", "sizes"), ("q", "sizes")) == (1.0, 1.0)


@pytest.mark.parametrize(("ratio", "failures"), [(0.9, ()), (1.0, ()), (1.01, ("JCT", "p95"))])
def test_whatever_is_slower_than_as_requested_fails(ratio: float, failures: tuple[str, ...]) -> None:
    found = verdicts(compared({"mine": ratio}), "mine")
    assert len(found) == 2 * 2
    assert [each.failures for each in found] == [failures] * 4


def test_an_uncertain_gain_fails_by_its_interval() -> None:
    """A tenth better in most weeks, a tenth worse in the others: on the mean better, and not for sure."""
    workloads: Workloads = [
        (key("one", week), {("a", "sizes"): figures(jct_s), ("as-requested", "sizes"): figures(1.0)})
        for week, jct_s in enumerate((0.8, 0.8, 1.2, 1.2))
    ]
    (verdict,) = verdicts(Comparison(workloads), "a")
    assert verdict.jct.estimate < 1.0
    assert verdict.failures == ("JCT", "p95")


@pytest.mark.parametrize(("killed", "passes"), [(2, True), (3, False)])
def test_two_of_a_thousand_jobs_may_be_killed_by_the_policy(killed: int, passes: bool) -> None:
    mine = msgspec.structs.replace(figures(0.5), jobs=1000, killed=100, killed_by_policy=killed)
    workloads: Workloads = [(key("one", 0), {("a", "sizes"): mine, ("as-requested", "sizes"): figures(1.0)})]
    (verdict,) = verdicts(Comparison(workloads), "a")
    assert verdict.passed == passes
    assert verdict.failures == (() if passes else ("killed",))


def test_a_user_who_pays_for_the_others_fails_it() -> None:
    users = {"ada": (LEAST_JOBS, 126.0), "eve": (LEAST_JOBS, 50.0)}
    before = {"ada": (LEAST_JOBS, 100.0), "eve": (LEAST_JOBS, 100.0)}
    workloads: Workloads = [
        (key("one", 0), {("a", "sizes"): figures(0.5, users), ("as-requested", "sizes"): figures(1.0, before)})
    ]
    (verdict,) = verdicts(Comparison(workloads), "a")
    assert verdict.failures == ("worst user",)


def test_as_requested_again_shows_what_is_chance() -> None:
    users = {"ada": (LEAST_JOBS, 150.0), "eve": (LEAST_JOBS, 50.0)}
    before = {"ada": (LEAST_JOBS, 100.0), "eve": (LEAST_JOBS, 100.0)}
    results: Results = {
        (name, "sizes"): figures(1.0, of)
        for name, of in (("a", before), ("as-requested", before), ("as-requested, again", users))
    }
    (verdict,) = verdicts(Comparison([(key("one", 0), results)]), "a")
    assert (verdict.worst_user, verdict.by_chance) == (1.0, 1.5)


def test_tables_and_figure_show_every_policy_and_setting() -> None:
    comparison = compared({"mine": 0.5, "repaired": 0.9, "afs-l": 0.8})
    made = tables(comparison, "mine")
    full = made[0]
    assert full.title.startswith("one, history, sizes only")
    assert [row[0] for row in full.rows] == ["mine", "afs-l", "repaired", "as-requested"]
    assert full.rows[0][1] == "0.500 [0.500, 0.500]"
    urgent = made[1]
    assert urgent.rows[-1][1:4] == ("1.000 [1.000, 1.000]", "1.000 [1.000, 1.000]", "0.800 [0.800, 0.800]")
    short = made[2]
    assert short.rows == (("one, history", "0.500", "0.900", "0.800"), ("other, history", "0.500", "0.900", "0.800"))
    assert "never worse than as requested in the same order: 4 of 4" in made[6].title
    markdown = full.markdown().splitlines()
    assert markdown[2].startswith("| policy | JCT | p95 |")
    assert len(markdown) == 4 + len(full.rows)
    assert draw(comparison, "mine").startswith(b"\x89PNG")


def test_settings_are_sides_of_their_own() -> None:
    setting: Setting = "urgency"
    comparison = compared({"mine": 0.5})
    assert comparison.ratio(("mine", setting), ("mine", "sizes")).estimate == pytest.approx(0.8)
    with pytest.raises(KeyError):
        comparison.ratio(("nobody", "sizes"), ("mine", "sizes"))


def test_further_figures_are_means_of_conditions_where_there_are_any() -> None:
    def with_further(value: float | None) -> Results:
        return {("a", "sizes"): msgspec.structs.replace(figures(1.0), further={"mine": value, "none": None})}

    workloads: Workloads = [
        (key("one", 0), with_further(1.0)),
        (key("one", 1), with_further(3.0)),
        (key("one", 2), with_further(None)),
        (key("other", 0), with_further(8.0)),
    ]
    assert Comparison(workloads).further(("a", "sizes")) == {"mine": 5.0, "none": None}


@pytest.mark.parametrize(("ratio", "repaired", "met"), [(0.6, 0.9, [True, True]), (0.8, 0.7, [False, False])])
def test_a_target_is_met_below_its_figure_and_ahead_of_repaired(
    ratio: float, repaired: float, met: list[bool]
) -> None:
    """Urgency takes a fifth off everything: 0.6 comes to 0.48 of as requested in the queue's own order."""
    workloads: Workloads = []
    for week in range(3):
        results: Results = {}
        for name, each in (("mine", ratio), ("repaired", repaired), ("as-requested", 1.0)):
            results[name, "sizes"], results[name, "urgency"] = figures(each), figures(0.8 * each)
        workloads.append((key(MODEST_SITE, week), results))
    found = targets(Comparison(workloads), "mine")
    assert [each.met for each in found] == met
    assert found[1].figure.startswith(f"{0.8 * ratio:.3f}")
    assert targets(compared({"mine": 0.5}), "mine") == []
