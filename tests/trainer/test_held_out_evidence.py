"""Who is judged on what was held out: the candidate, and where it is refused the best heuristic."""

import msgspec
import pytest

from rlalloc.heuristics import ALTERNATIVES, AS_REQUESTED_NAME, BASELINE_NAME
from rlalloc.policy.policies import NOWHERE, Routing
from rlalloc_trainer.promotion.held_out_evidence import (
    CANDIDATE,
    GATE_HEURISTICS,
    INSTEAD,
    SAME_ORDER,
    HeldOut,
    decide,
)
from tests.simulator.comparison.example_results import result

FIRST, SECOND = tuple(ALTERNATIVES)[:2]
PRESSED = Routing(at_least=0.5)


def held_out(jct_s: dict[str, float], *, killed: int = 0, spread: float = 0.0) -> HeldOut:
    """Nine workloads; a policy not named takes 100 s. ``killed`` are SECOND's, ``spread`` is between workloads."""
    results = {
        name: [
            result(
                jct_s.get(name, 100.0) * (1.0 + spread * (number % 3 - 1) * (name == SECOND)),
                wait_s=10.0 * number,
                killed=killed * (name == SECOND),
            )
            for number in range(9)
        ]
        for name in (CANDIDATE, "v1", SAME_ORDER, *GATE_HEURISTICS)
    }
    return HeldOut(results, "v1", 500, 0.9)


def test_a_candidate_that_beats_all_is_promoted_as_it_answers() -> None:
    routing, verdict = decide(held_out({CANDIDATE: 80.0, SECOND: 90.0}), PRESSED, heuristics=True)
    assert (routing, verdict.promote, verdict.evidence.candidate) == (PRESSED, True, CANDIDATE)


@pytest.mark.parametrize("candidate_s", [100.0, 95.0], ids=["no better", "better, but less than a heuristic"])
def test_a_heuristic_that_is_better_than_what_is_served_takes_the_place_of_a_refused_candidate(
    candidate_s: float,
) -> None:
    """The best of them, surely ahead at a level that knows of how many it is the best."""
    measured = held_out({CANDIDATE: candidate_s, FIRST: 97.0, SECOND: 90.0})
    routing, verdict = decide(measured, PRESSED, heuristics=True)
    assert (routing, verdict.promote) == (Routing.by(SECOND), True)
    ratios = f"0.900 [0.900, 0.900] versus v1 and 0.928 [0.928, 0.928] versus {FIRST}"
    assert verdict.reason.startswith(f"{SECOND} is promoted: mean JCT ratio {ratios} on")
    assert verdict.evidence.confidence == pytest.approx(1.0 - 0.1 / (len(ALTERNATIVES) + 1))


def test_where_the_base_is_the_best_it_is_served_instead_of_a_worse_network() -> None:
    routing, verdict = decide(held_out({BASELINE_NAME: 90.0}), PRESSED, heuristics=True)
    assert (routing, verdict.promote) == (NOWHERE, True)


@pytest.mark.parametrize(
    "measured",
    [held_out({}), held_out({SECOND: 98.0}, spread=0.1), held_out({SECOND: 90.0}, killed=1)],
    ids=["none is better", "not surely", "it kills jobs"],
)
def test_otherwise_the_candidate_is_stored_with_its_refusal(measured: HeldOut) -> None:
    routing, verdict = decide(measured, PRESSED, heuristics=True)
    assert (routing, verdict.promote, verdict.evidence.candidate) == (PRESSED, False, CANDIDATE)


@pytest.mark.parametrize(("worse", "promoted"), [((1.4, 1.4, 1.4), False), ((2.0, 0.5, 0.8), True)])
def test_who_truly_hurts_a_user_is_refused_and_chance_is_not(worse: tuple[float, ...], promoted: bool) -> None:
    """Ahead of all in the mean; one user is worse off in each drawn workload, or in one of three."""
    measured = held_out({CANDIDATE: 80.0})

    def with_users(name: str, ratios: tuple[float, ...]) -> None:
        measured.results[name] = [
            msgspec.structs.replace(one, users=result(1.0, users={"ada": (30, 100.0 * ratios[place % 3])}).users)
            for place, one in enumerate(measured.results[name])
        ]

    with_users(CANDIDATE, worse)
    with_users(SAME_ORDER, (1.0, 1.0, 1.0))
    _, verdict = decide(measured, PRESSED, heuristics=False)
    assert verdict.promote == promoted
    assert (
        "a user is worse off than as requested in the same order: mean JCT ratio 1.40" in verdict.reason
    ) != promoted


WORSE = {"v1": 120.0, CANDIDATE: 125.0, **dict.fromkeys(INSTEAD, 130.0)}
"""All are worse than as requested."""


def test_as_requested_takes_the_place_of_a_policy_that_is_worse_where_nothing_else_may() -> None:
    routing, verdict = decide(held_out(WORSE), PRESSED, heuristics=True)
    assert (routing, verdict.promote) == (Routing.by(AS_REQUESTED_NAME), True)
    assert verdict.reason == (
        f"{AS_REQUESTED_NAME} is promoted, because v1 is worse than as requested in the same order: mean JCT "
        "ratio 1.200 [1.200, 1.200] on 9 workloads drawn from 500 held-out jobs (95% interval)"
    )
    assert verdict.evidence.candidate == AS_REQUESTED_NAME
    assert verdict.evidence.against_current.estimate == pytest.approx(100.0 / 120.0)


def test_what_passes_the_bar_is_preferred_to_as_requested() -> None:
    """It is promoted by the usual rules: also where as requested itself is in use."""
    for in_use_s in (120.0, 100.0):
        measured = held_out({**WORSE, "v1": in_use_s, BASELINE_NAME: 95.0})
        assert decide(measured, PRESSED, heuristics=True)[0] == NOWHERE


def test_as_requested_stays_where_nothing_is_better() -> None:
    routing, verdict = decide(held_out({**WORSE, "v1": 100.0}), PRESSED, heuristics=True)
    assert (routing, verdict.promote, verdict.evidence.candidate) == (PRESSED, False, CANDIDATE)


def test_of_another_objective_heuristics_know_nothing() -> None:
    for measured in (held_out({SECOND: 50.0}), held_out(WORSE)):
        routing, verdict = decide(measured, PRESSED, heuristics=False)
        assert (routing, verdict.promote) == (PRESSED, False)
