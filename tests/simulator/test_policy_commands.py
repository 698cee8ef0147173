"""``rlalloc simulate policies|compare|tune`` as a person types them, and what is behind them."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from rlalloc.errors import PolicyError
from rlalloc.heuristics import REFERENCE_POLICIES
from rlalloc.heuristics.order import ORDERS, SMALLEST_AREA_FIRST
from rlalloc.progress import silent
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator import heuristic_tuning as tuning
from rlalloc_simulator.commands.policy_commands import add_commands
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.load_comparison import LOWER_BOUND, ComparisonSettings, compare
from rlalloc_simulator.comparison.runner import Run, RunSettings, run_policy
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.heuristic_tuning import TUNABLE, CandidatePolicy, TuningSettings, jct_log_ratios, tune
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY
from rlalloc_simulator.training_workloads import TUNING, training_workload
from tests.simulator.comparison.example_results import result

APP = typer.Typer()
add_commands(APP)
SMALL = ComparisonSettings(loads=(0.5, 1.5), workloads=2, hours=6.0, nodes=2)


def test_policies_are_listed_with_their_sources() -> None:
    result = CliRunner().invoke(APP, ["policies"])
    assert result.exit_code == 0
    assert all(name in result.output for name in REFERENCE_POLICIES)
    assert "Optimus" in result.output


def test_a_comparison_is_paired_and_nothing_is_below_the_bound() -> None:
    names = ("price-ef", "afs-l", "smallest+shortest-first")
    compared = compare(names, SMALL, map, silent)
    assert list(compared) == [REFERENCE, *names, LOWER_BOUND]
    for row in range(2):
        assert compared[REFERENCE][row].ratio.estimate == 1.0
        bound = compared[LOWER_BOUND][row]
        for name in names:
            one = compared[name][row]
            assert bound.jct_s <= one.jct_s
            assert one.ratio.low <= one.ratio.estimate <= one.ratio.high
    assert compare(names, SMALL, map, silent) == compared


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_pays_where_jobs_wait(order: str) -> None:
    settings = ComparisonSettings(loads=(2.0,), workloads=4, hours=12.0, nodes=2)
    name = f"as-requested{order}"
    ratio = compare((name,), settings, map, silent)[name][0].ratio
    assert ratio.estimate < 1.0


def test_compare_prints_a_table() -> None:
    options = ["--workloads", "1", "--hours", "6", "--nodes", "2", "--loads", "0.5,1", "--policy", "afs-l"]
    result = CliRunner().invoke(APP, ["compare", *options])
    assert result.exit_code == 0
    assert "afs-l" in result.output
    assert LOWER_BOUND in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--policy", "nothing"],
        ["compare", "--loads", "much"],
        ["compare", "--loads", "0"],
        ["compare", "--model", "nowhere.json"],
        ["tune", "fcfs"],
    ],
)
def test_wrong_use(arguments: list[str]) -> None:
    result = CliRunner().invoke(APP, arguments)
    assert result.exit_code == 2
    assert "rlalloc simulate:" in result.stderr


@pytest.mark.parametrize("name", TUNABLE)
def test_tuning_gives_constants_that_the_policy_takes(name: str) -> None:
    settings = TuningSettings(rounds=1, candidates=2, workloads=2, test_workloads=2, jobs=15)
    tuned = tune(name, settings, map, silent)
    assert set(tuned.values) == set(TUNABLE[name].in_use)
    assert all(math.isfinite(value) and value > 0 for value in tuned.values.values())
    assert all(tuned.values[share] < 1 for share in TUNABLE[name].shares)
    assert tuned.ratio.estimate > 0
    assert tune(name, settings, map, silent) == tuned


def test_tuning_finds_what_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mean JCT that is least at a threshold of 0.8, and the baseline as it is."""

    def made_up(runs: dict[int, Run], sources: Sequence[object], _: object) -> dict[int, list[WorkloadResult]]:
        policies = {number: run.policy for number, run in runs.items()}
        jct_s = {
            number: 5.0 + (each.values["threshold"] - 0.8) ** 2 if isinstance(each, CandidatePolicy) else 10.0
            for number, each in policies.items()
        }
        return {number: [result(seconds)] * len(sources) for number, seconds in jct_s.items()}

    monkeypatch.setattr(tuning, "run_all", made_up)
    tuned = tune("efficiency", TuningSettings(rounds=8, candidates=20, workloads=1, test_workloads=3), map, silent)
    assert tuned.values["threshold"] == pytest.approx(0.8, abs=0.03)
    assert tuned.ratio.estimate == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", ["price-ef", "price-ef+smallest-area-first"])
def test_ratios_are_versus_the_reference_in_the_same_order_of_the_queue(name: str) -> None:
    """Else the order's gain would pass for the constants'."""
    ordered = name.endswith(SMALLEST_AREA_FIRST)
    log_ratios = jct_log_ratios(name, [TUNABLE[name].in_use], range(TUNING, TUNING + 2), 30, map)
    rules = SIMULATED_URGENCY if ordered else UrgencyRules()
    settings, suffix = RunSettings(urgency=rules), SMALLEST_AREA_FIRST if ordered else ""
    for place in range(2):
        workload = training_workload(TUNING + place, 30)
        tuned, reference = (
            run_policy(HeuristicPolicy(each), workload, settings).jct_s for each in (name, f"{REFERENCE}{suffix}")
        )
        assert log_ratios[0, place] == pytest.approx(math.log(tuned / reference))


def test_points_and_constants_are_the_same_thing() -> None:
    for tunable in TUNABLE.values():
        assert tunable.values(tunable.point(tunable.in_use)) == pytest.approx(tunable.in_use)
        assert np.isfinite(tunable.point(tunable.in_use)).all()


def test_what_has_no_constants_is_refused() -> None:
    with pytest.raises(PolicyError, match="price-ef, steep-price"):
        tune("as-requested", TuningSettings(), map, silent)
