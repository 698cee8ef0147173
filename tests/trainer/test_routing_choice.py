"""The routing is chosen by what it wins, never where it is behind the baseline heuristic."""

import msgspec
import pytest
import torch

from rlalloc.heuristics import ALTERNATIVES, BASELINE_NAME
from rlalloc.heuristics.named import policy_named
from rlalloc.objective import Weights
from rlalloc.policy.policies import EVERYWHERE, NOWHERE, Routing
from rlalloc_agent.actor import Actor
from rlalloc_simulator.comparison.compared_policy import HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_simulator.comparison.runner import RunSettings, run_policy, run_simulator
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_simulator.training_workloads import VALIDATION, training_workload
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_trainer.promotion.routing_choice import ROUTINGS, best_of, best_routing, choose_routing, served
from tests.simulator.comparison.example_results import result

PRESSED, CALM = ROUTINGS[1], ROUTINGS[2]


def ratios(everything: float, *thirds: float) -> dict[str, Interval]:
    names = ("all", "calm", "usual", "busy")
    return {
        name: Interval(value, value - 0.01, value + 0.01)
        for name, value in zip(names, (everything, *thirds), strict=True)
    }


@pytest.mark.parametrize(
    ("measured", "chosen"),
    [
        ({EVERYWHERE: ratios(0.95, 0.99, 0.95, 0.91), PRESSED: ratios(0.96, 1.0, 0.96, 0.92)}, EVERYWHERE),
        ({EVERYWHERE: ratios(0.95, 1.02, 0.95, 0.88), PRESSED: ratios(0.96, 1.0, 0.96, 0.92)}, PRESSED),
        ({EVERYWHERE: {"all": Interval(0.99, 0.98, 0.999), "calm": Interval(1.002, 1.001, 1.003)}}, EVERYWHERE),
        ({EVERYWHERE: ratios(1.05, 0.95, 1.0, 1.2), CALM: ratios(0.98, 0.95, 0.99, 1.0)}, CALM),
        ({EVERYWHERE: ratios(1.05, 1.02, 1.0, 1.2), CALM: ratios(1.01, 0.95, 0.99, 1.1)}, NOWHERE),
        ({EVERYWHERE: ratios(1.0, 1.0, 1.0, 1.0)}, NOWHERE),
        ({EVERYWHERE: ratios(*[float("nan")] * 4)}, NOWHERE),
    ],
    ids=[
        "wins",
        "loses where it is calm",
        "next to nothing where it is calm",
        "loses where it is busy",
        "loses",
        "is the heuristic",
        "was not measured",
    ],
)
def test_the_best_way_behind_nowhere(measured: dict[Routing, dict[str, Interval]], chosen: Routing) -> None:
    assert (best_routing(measured) or NOWHERE) == chosen


def test_what_is_proven_later_need_not_be_surely_ahead() -> None:
    """Else one percent, which is told on many test workloads only, would never be asked about."""
    perhaps = {"all": Interval(0.99, 0.98, 1.001), "calm": Interval(1.0, 0.99, 1.01)}
    behind = {"all": Interval(0.98, 0.96, 1.001), "calm": Interval(1.02, 1.01, 1.03)}
    routings = {EVERYWHERE: behind, PRESSED: perhaps, CALM: ratios(1.0, 1.0, 1.0, 1.0)}
    assert best_routing(routings) is None
    assert best_routing(routings, proven_later=True) == PRESSED


def test_where_no_network_is_asked_the_heuristic_runs_itself() -> None:
    """To the same result as an actor that is told of each job and leaves it to the heuristic."""
    actor = Actor()
    with torch.no_grad():
        actor.residual.bias[0] = -8.0
    own, urgent = (
        next(
            workload
            for number in range(20)
            if orders(workload := training_workload(VALIDATION + number, 40)) == counts
        )
        for counts in (False, True)
    )
    learned = LearnedPolicy.of(actor, Routing(own_order=True))
    baseline = HeuristicPolicy(BASELINE_NAME)
    assert learned.policy(urgent.site.interception.urgency) == policy_named(BASELINE_NAME)
    assert run_policy(learned, urgent) == run_policy(baseline, urgent)
    assert run_policy(learned, own) != run_policy(baseline, own)
    other = msgspec.structs.replace(learned, objective=Weights(energy=0.1))
    assert run_policy(other, urgent) != run_policy(baseline, urgent)
    asked = learned.policy(own.site.interception.urgency)
    simulator = Simulator(urgent.site, table_of(urgent.jobs, urgent.site))
    assert run_simulator(simulator, urgent.jobs, asked, RunSettings()) == run_policy(learned, urgent)


def orders(workload: Workload) -> bool:
    return workload.site.interception.urgency.nice_band > 0


def test_every_way_is_run_and_only_one_that_wins_is_taken() -> None:
    """An actor that always asks for the least GPUs: not the heuristic, and asked at most where that is better."""
    actor = Actor()
    with torch.no_grad():
        actor.residual.bias[0] = -8.0
    workloads = [training_workload(VALIDATION + number, 60) for number in (0, 1, 2)]
    routing, measured = choose_routing(LearnedPolicy.of(actor), workloads, map)
    assert set(measured) == {routing.describe() for routing in ROUTINGS}
    assert measured["everywhere"].estimate != pytest.approx(1.0, abs=1e-3)
    assert routing == NOWHERE or measured[routing.describe()].estimate < 1.0


def test_another_heuristic_that_is_better_is_taken_and_needs_no_network() -> None:
    """On a site where one that stands in for the base is the best, the agent serves that."""
    weights, name = LearnedPolicy.of(Actor()), next(iter(ALTERNATIVES))
    routing = Routing(below=0.0, heuristic=name)
    assert routing in ROUTINGS
    base = [result(100.0, wait_s=50.0)] * 6
    assert best_of({EVERYWHERE: base, routing: [result(90.0, wait_s=50.0)] * 6}, base)[0] == routing
    assert served(weights, routing) == HeuristicPolicy(name)
    assert served(weights, PRESSED) == msgspec.structs.replace(weights, routing=PRESSED)


def test_for_another_objective_only_the_network_is_run() -> None:
    weights = LearnedPolicy.of(Actor(), objective=Weights(energy=0.1))
    _, measured = choose_routing(weights, [training_workload(VALIDATION, 60)], map)
    assert set(measured) == {"everywhere"}


def test_by_results() -> None:
    """Ahead over all, behind where jobs wait least: asked under pressure only."""
    base = [result(100.0, wait_s=wait) for wait in (0.0, 50.0, 90.0) for _ in range(4)]
    everywhere = [result(jct, wait_s=50.0) for jct in (110.0, 90.0, 80.0) for _ in range(4)]
    pressed = [result(jct, wait_s=50.0) for jct in (100.0, 95.0, 85.0) for _ in range(4)]
    routing, measured = best_of({EVERYWHERE: everywhere, PRESSED: pressed}, base)
    assert routing == PRESSED
    assert measured[EVERYWHERE].estimate == pytest.approx((1.1 * 0.9 * 0.8) ** (1 / 3))
