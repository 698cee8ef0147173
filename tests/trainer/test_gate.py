"""The gate's truth table: only who is better than the policy in place, and not behind any heuristic, gets in."""

import msgspec
import pytest

from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.evaluation.never_worse import SameOrder
from rlalloc_trainer.promotion.gate import Evidence, judge, judge_in_use

BETTER = Interval(0.90, 0.85, 0.95)
UNSURE_BETTER = Interval(0.97, 0.93, 1.01)
SAME = Interval(1.00, 1.00, 1.00)
UNSURE_WORSE = Interval(1.02, 0.98, 1.06)
WORSE = Interval(1.10, 1.05, 1.15)
UNKNOWN = Interval(1.10, float("nan"), float("nan"))

FINE = SameOrder(jct=BETTER, p95=SAME, killed=0.0, worst_user=1.2)


def evidence(current: Interval, heuristics: list[Interval], killed: tuple[int, int] = (0, 0)) -> Evidence:
    return Evidence(
        candidate="the candidate",
        current="v000001",
        against_current=current,
        same_order=FINE,
        current_same_order=FINE,
        against_heuristics={f"heuristic-{number}": ratio for number, ratio in enumerate(heuristics)},
        killed_candidate=killed[0],
        killed_current=killed[1],
        held_out_jobs=18,
        workloads=40,
        confidence=0.9,
    )


@pytest.mark.parametrize(
    ("current", "heuristics", "killed", "promoted", "says"),
    [
        (BETTER, [BETTER, BETTER], (0, 0), True, "is promoted"),
        (BETTER, [BETTER, UNSURE_BETTER], (0, 0), True, "0.970 [0.930, 1.010] versus heuristic-1"),
        (BETTER, [BETTER, SAME], (0, 0), True, "is promoted"),
        (BETTER, [BETTER, SAME], (3, 3), True, "is promoted"),
        (BETTER, [BETTER, UNSURE_WORSE], (0, 0), False, "not heuristic-1"),
        (BETTER, [WORSE, BETTER], (0, 0), False, "not heuristic-0"),
        (BETTER, [BETTER, BETTER], (2, 1), False, "2 instead of 1"),
        (UNSURE_BETTER, [BETTER], (0, 0), False, "not better than v000001"),
        (SAME, [BETTER], (0, 0), False, "not better than v000001"),
        (UNSURE_WORSE, [BETTER], (0, 0), False, "not better than v000001"),
        (WORSE, [BETTER], (0, 0), False, "worse than v000001"),
        (WORSE, [WORSE], (0, 0), False, "worse than v000001"),
        (Interval(0.99, 0.98, 1.00), [BETTER], (0, 0), False, "not better than"),
        (Interval(*[float("nan")] * 3), [BETTER], (0, 0), False, "not promoted"),
    ],
)
def test_truth_table(
    current: Interval, heuristics: list[Interval], killed: tuple[int, int], promoted: bool, says: str
) -> None:
    verdict = judge(evidence(current, heuristics, killed))
    assert verdict.promote is promoted
    assert says in verdict.reason
    assert "18 held-out jobs" in verdict.reason


def test_being_behind_where_the_site_is_busy_is_enough_to_be_refused() -> None:
    """Better over all, and surely worse in a third: refused; perhaps worse there: not."""
    sound = evidence(BETTER, [BETTER])
    for busy, promoted in ((WORSE, False), (UNSURE_WORSE, True)):
        verdict = judge(
            msgspec.structs.replace(sound, by_third={"calm": {"price-ef": BETTER}, "busy": {"price-ef": busy}})
        )
        assert verdict.promote is promoted
        assert ("worse than price-ef where the site is busy" in verdict.reason) is not promoted


def test_a_verdict_is_plain_json() -> None:
    verdict = judge(evidence(BETTER, [BETTER]))
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=type(verdict)) == verdict


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"jct": UNSURE_WORSE}, "mean JCT ratio 1.020"),
        ({"jct": Interval(0.99, 0.95, 1.03)}, "mean JCT ratio 0.990"),
        ({"p95": WORSE}, "95th percentile of JCT ratio 1.100"),
        ({"killed": 0.003}, "kills 0.3% of the jobs"),
        ({"worst_user": 1.3}, "a user is worse off"),
    ],
)
def test_who_is_worse_than_requested_is_not_promoted(changed: dict[str, object], says: str) -> None:
    """However far it is ahead of the policy in use and of the heuristics."""
    ahead = evidence(BETTER, [BETTER])
    worse = msgspec.structs.replace(ahead, same_order=msgspec.structs.replace(FINE, **changed))
    assert judge(ahead).promote
    verdict = judge(worse)
    assert not verdict.promote
    assert says in verdict.reason


def test_where_no_user_has_enough_jobs_none_is_the_worst() -> None:
    ahead = evidence(BETTER, [BETTER])
    assert judge(msgspec.structs.replace(ahead, same_order=msgspec.structs.replace(FINE, worst_user=None))).promote


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"jct": WORSE}, "v000001 is worse than as requested in the same order: mean JCT ratio 1.100 [1.050, 1.150]"),
        ({"p95": WORSE}, "v000001 is worse than as requested in the same order: 95th percentile of JCT ratio 1.100"),
        ({"killed": 0.003}, "v000001 kills 0.3% of the jobs by the sizes that it gives them, more than 0.2%,"),
        ({"worst_user": 1.3}, "with v000001 a user is worse off than as requested in the same order: mean JCT"),
    ],
)
def test_a_policy_in_use_that_is_surely_worse_than_requested_gives_way(changed: dict[str, object], says: str) -> None:
    measured = evidence(SAME, [SAME])
    verdict = judge_in_use(msgspec.structs.replace(measured, current_same_order=in_use(changed)))
    assert verdict is not None
    assert verdict.promote
    assert verdict.reason.startswith(f"the candidate is promoted, because {says}")
    assert "on 40 workloads drawn from 18 held-out jobs (90% interval)" in verdict.reason


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"jct": UNSURE_WORSE},
        {"jct": UNKNOWN, "p95": UNKNOWN},
        {"jct": Interval(1.0005, 1.0002, 1.0008)},
        {"p95": UNSURE_WORSE},
        {"killed": 0.002},
        {"worst_user": 1.25},
        {"worst_user": None},
    ],
)
def test_a_policy_in_use_stays_for_want_of_evidence(changed: dict[str, object]) -> None:
    assert judge_in_use(msgspec.structs.replace(evidence(SAME, [SAME]), current_same_order=in_use(changed))) is None


def in_use(changed: dict[str, object]) -> SameOrder:
    return msgspec.structs.replace(FINE, **changed)
