"""Who answers where: chosen by what it wins, never where it is behind the base heuristic."""

import msgspec
import pytest
import torch

from rlalloc.heuristics import STAND_INS
from rlalloc.objective import Weights
from rlalloc.policies import EVERYWHERE, NOWHERE, Answering
from rlalloc_agent.actor import Actor
from rlalloc_trainer.answering import WAYS, best_of, best_way, by_wait, choose_where, served
from rlalloc_trainer.evaluation import ActorWeights, StreamResult
from rlalloc_trainer.intervals import Interval
from rlalloc_trainer.simulator.training_streams import VALIDATION, training_stream

PRESSED, CALM = WAYS[1], WAYS[2]


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
def test_the_best_way_behind_nowhere(measured: dict[Answering, dict[str, Interval]], chosen: Answering) -> None:
    assert best_way(measured) == chosen


def test_thirds_are_by_how_much_of_the_jct_is_waiting() -> None:
    waits = [5.0, 0.0, 9.0, 1.0, 8.0, 4.0]
    results = [result(10.0, wait) for wait in waits]
    thirds = {name: sorted(rows.tolist()) for name, rows in by_wait(results).items()}
    assert thirds == {"calm": [1, 3], "usual": [0, 5], "busy": [2, 4]}
    assert set(by_wait(results[:1])) == {"calm"}


def test_every_way_is_run_and_only_one_that_wins_is_taken() -> None:
    """An actor that always asks for the least GPUs: not the heuristic, and asked at most where that is better."""
    actor = Actor()
    with torch.no_grad():
        actor.residual.bias[0] = -8.0
    streams = [training_stream(VALIDATION + number, 60) for number in (0, 1, 2)]
    answers, measured = choose_where(ActorWeights.of(actor), streams, map)
    assert set(measured) == {way.describe() for way in WAYS}
    assert measured["everywhere"].estimate != pytest.approx(1.0, abs=1e-3)
    assert answers == NOWHERE or measured[answers.describe()].estimate < 1.0


def test_another_heuristic_that_is_better_is_taken_and_needs_no_network() -> None:
    """On a site where one that stands in for the base is the best, the agent serves that."""
    weights, name = ActorWeights.of(Actor()), next(iter(STAND_INS))
    way = Answering(below=0.0, heuristic=name)
    assert way in WAYS
    base = [result(100.0, 50.0)] * 6
    assert best_of({EVERYWHERE: base, way: [result(90.0, 50.0)] * 6}, base)[0] == way
    assert served(weights, way) == name
    assert served(weights, PRESSED) == msgspec.structs.replace(weights, answers=PRESSED)


def test_for_another_objective_only_the_network_is_run() -> None:
    weights = ActorWeights.of(Actor(), objective=Weights(energy=0.1))
    _, measured = choose_where(weights, [training_stream(VALIDATION, 60)], map)
    assert set(measured) == {"everywhere"}


def test_by_results() -> None:
    """Ahead over all, behind where jobs wait least: asked under pressure only."""
    base = [result(100.0, wait) for wait in (0.0, 50.0, 90.0) for _ in range(4)]
    everywhere = [result(jct, 50.0) for jct in (110.0, 90.0, 80.0) for _ in range(4)]
    pressed = [result(jct, 50.0) for jct in (100.0, 95.0, 85.0) for _ in range(4)]
    answers, measured = best_of({EVERYWHERE: everywhere, PRESSED: pressed}, base)
    assert answers == PRESSED
    assert measured["everywhere"].estimate == pytest.approx((1.1 * 0.9 * 0.8) ** (1 / 3))


def result(jct_s: float, wait_s: float) -> StreamResult:
    return StreamResult(jct_s=jct_s, wait_s=wait_s, gpu_s=0.0, killed=0)
