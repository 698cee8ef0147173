"""What a site chooses to serve, and by which workloads."""

import pytest

from rlalloc_simulator.workloads import ClusterDescription
from rlalloc_trainer.evaluation.scenario_runs import Results, WorkloadKey
from rlalloc_trainer.evaluation.scenarios import DGX, GeneratedWeeks
from rlalloc_trainer.evaluation.site_choice import CHOICES, CHOSEN, Site, with_choice
from tests.trainer.evaluation.example_results import figures, key

OTHER = CHOICES[-1]  # the base: a site may be better off without the network


def results(jct_s: float, other_s: float, urgency_s: float = 100.0) -> Results:
    """Of a policy, of OTHER, and of OTHER with urgency; whoever else may be chosen takes twice as long."""
    found: Results = {}
    for name in ("mine", *CHOICES):
        mine = {"mine": jct_s, OTHER: other_s}.get(name, 2.0 * jct_s)
        found[name, "sizes"] = figures(mine)
        found[name, "urgency"] = figures({"mine": 100.0, OTHER: urgency_s}.get(name, 200.0))
    return found


def generated(week: int, weeks: tuple[int, ...], load: float = 1.0) -> WorkloadKey:
    scenario = GeneratedWeeks("model", "philly", DGX, ClusterDescription(nodes=(DGX,)), 12.0, weeks)
    return WorkloadKey(scenario, week, 0, load)


def test_weeks_to_choose_by_say_who_is_served_in_each_setting() -> None:
    """OTHER is better on all that was seen with sizes only: it is served there, also where that turns out worse."""
    seen = [(generated(week, (7, 8), load), results(100.0, 90.0, 120.0)) for week in (7, 8) for load in (0.6, 1.5)]
    workloads = [(generated(week, (1, 2)), results(50.0, 60.0, 80.0)) for week in (1, 2)]
    chosen, served = with_choice(workloads, seen, "mine")
    assert served == {Site("model", "sizes"): (OTHER,), Site("model", "urgency"): ("mine",)}
    assert [found[f"{CHOSEN}mine", "sizes"].jct_s for _, found in chosen] == [60.0, 60.0]
    assert [found[f"{CHOSEN}mine", "urgency"].jct_s for _, found in chosen] == [100.0, 100.0]
    assert all(found["mine", "sizes"].jct_s == 50.0 for _, found in chosen)


@pytest.mark.parametrize("name", ["elsewhere", "model"])
def test_nothing_is_chosen_by_another_scenario_nor_by_what_is_judged(name: str) -> None:
    """``model``'s own workloads are those that are judged: they are no past."""
    better = results(100.0, 90.0)
    seen = [(key(name, week, 1.0), better) for week in (2, 3)] if name == "elsewhere" else []
    workloads = [(generated(week, (1, 2)), better) for week in (1, 2)]
    assert with_choice(workloads, seen, "mine")[1][Site("model", "sizes")] == ("mine",)


def test_pieces_of_a_file_are_served_what_was_best_on_those_before() -> None:
    workloads = [(key("site", week, load), results(100.0, 90.0)) for week in (0, 1, 2) for load in (0.6, 1.0)]
    chosen, served = with_choice(workloads, [], "mine")
    assert served[Site("site", "sizes")] == ("mine", OTHER)
    assert [found[f"{CHOSEN}mine", "sizes"].jct_s for _, found in chosen] == [100.0] * 2 + [90.0] * 4
