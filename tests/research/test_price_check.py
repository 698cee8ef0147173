"""What known-gain predicts of a size against what comes of it, in a case that can be followed by hand."""

import numpy as np
import pytest

from rlalloc.heuristics import Ordered, as_requested
from rlalloc.heuristics.known_gain import COMING
from rlalloc_research.price_check.forced_sizes import RetakenDecision, retaken_decisions
from rlalloc_research.price_check.prediction_errors import chosen_gain, part_rows, price_rows
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY, Workload, with_late_decisions, with_urgency
from tests.simulator.engine.by_hand import job, site, size

from .test_research_commands import output_of

NODE = 8
RUN_S, RIGID_S = 1000.0, 500.0


def decisions(*, urgency: bool = False) -> list[RetakenDecision]:
    """A job of 1 to 8 GPUs that asked for all of a node, and at once one that needs half of it."""
    there = with_late_decisions(site(1), 0.0)
    if urgency:
        there = with_urgency(there, SIMULATED_URGENCY)
    jobs = (job(0, size(NODE, 3000), RUN_S, managed=True), job(10, size(NODE // 2), RIGID_S))
    policy = Ordered(as_requested) if urgency else as_requested
    return retaken_decisions(Workload(there, jobs), policy, 5, 0)


@pytest.mark.parametrize("urgency", [False, True])
def test_a_forced_size_shows_what_the_job_and_the_others_go_through(urgency: bool) -> None:
    """In half of the node the job takes twice as long, and the other one starts at once."""
    (decision,) = decisions(urgency=urgency)
    came = {each.gpus: each.came for each in decision.sizes}
    assert decision.sizes[0].gpus == NODE
    assert decision.on_arrival
    assert (came[NODE].wait_s, came[NODE].run_s, came[NODE].others_s) == (0.0, RUN_S, 0.0)
    assert (came[4].wait_s, came[4].run_s) == pytest.approx((0.0, 2 * RUN_S))
    assert came[4].others_s == pytest.approx(10.0 - RUN_S)


def test_what_is_charged_is_split_into_its_parts() -> None:
    (decision,) = decisions()
    request = decision.sizes[0]
    assert request.predicted.run_s == pytest.approx(0.44 * 3000)
    assert decision.request_others_s == pytest.approx(COMING * 0.44 * 3000)
    assert all(each.predicted.others_s == pytest.approx(COMING * each.taken_s) for each in decision.sizes)


def test_the_price_is_what_others_wait_for_a_second_of_the_whole_cluster() -> None:
    taken = decisions()
    whole, *_ = price_rows(taken)
    assert (whole.jobs, whole.decisions) == ("all", 1)
    assert whole.charged == pytest.approx(COMING)
    saved = sum(-each.came.others_s * np.sign(-each.taken_s) for each in taken[0].sizes[1:])
    assert whole.came == pytest.approx(saved / sum(abs(each.taken_s) for each in taken[0].sizes[1:]))


def test_rows_have_differences_from_the_request_where_the_absolute_means_nothing() -> None:
    rows = {each.part: each for each in part_rows(decisions())}
    assert rows["own JCT"].sizes == rows["others' wait"].sizes + 1
    assert rows["own JCT"].rank_correlation > 0.9


def test_a_choice_saves_what_came_of_it() -> None:
    (decision,) = decisions()
    best = min(decision.sizes, key=lambda each: each.predicted.total_s)
    saved, _, promised = chosen_gain([decision], 0.0)
    assert saved == pytest.approx(decision.sizes[0].came.total_s - best.came.total_s)
    assert promised == pytest.approx(decision.sizes[0].predicted.total_s - best.predicted.total_s)


def test_the_command_prints_every_part() -> None:
    printed = output_of("price-check", "--only", "modest, large jobs", "--seeds", "1", "--decisions", "1")
    assert all(words in printed for words in ("own wait", "others' wait", "per second of the whole cluster"))
