"""Decisions taken again are worth what they change, and nothing where they change nothing."""

import functools
import math

import msgspec
import numpy as np
import pytest

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import BASELINE, price_ef
from rlalloc.job import SHARES, JobView, Shares
from rlalloc.objective import TERM_NAMES
from rlalloc.observation import encode
from rlalloc.policy.policy_inputs import PolicyInputs, baseline_shares
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.view import ClusterView, expected_run_time_s
from rlalloc_simulator.driving import drive, sizes_now
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.engine.job_table import size_of
from rlalloc_simulator.objective_costs import KnownBefore
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_simulator.training_workloads import training_workload
from rlalloc_trainer.advantages import counterfactual
from rlalloc_trainer.advantages.counterfactual import AdvantageSettings, counterfactual_advantages
from tests.simulator.engine.by_hand import job, site, size

INPUTS = PolicyInputs()
SMALL = AdvantageSettings(decisions=6)


def lonely_jobs(count: int) -> Workload:
    """Jobs so far apart that each has the site for itself; on 1 to 16 GPUs, scaling linearly."""
    jobs = tuple(job(1e6 * number, size(4, 6000), 1000.0, managed=True) for number in range(count))
    return Workload(site(), jobs)


def crowded(number: int = 3) -> Workload:
    return training_workload(number, 60)


def test_alone_on_the_cluster_the_advantage_is_the_jobs_own() -> None:
    """More GPUs than the heuristic's are an advantage, fewer a disadvantage, and as many are neither."""
    settings = AdvantageSettings(decisions=20, alternatives=5, explored_cpu=0.0, explored_mem=0.0)
    workload = lonely_jobs(20)
    advantages = counterfactual_advantages(workload, price_ef, settings, np.random.default_rng(0))
    counts = np.array(workload.jobs[0].bounds.gpu_counts)
    chosen = counts[np.abs(np.log2(counts)[None] - 4 * advantages.shares[:, :1]).argmin(axis=1)]
    heuristic = round(16 ** baseline_shares(advantages.observation[0]).gpu)
    scale_s = 60.0 + expected_run_time_s(workload.jobs[0], workload.jobs[0].request)
    assert advantages.by_term[:, TERM_NAMES.index("jct")] == pytest.approx(
        (4000 / heuristic - 4000 / chosen) / scale_s, abs=1e-4
    )


@pytest.mark.parametrize("number", [3, 4, 5])
def test_a_gain_is_what_running_the_whole_workload_again_would_say(number: int) -> None:
    """To the end of the workload, each job in the size that it was given, but one."""
    workload = crowded(number)
    driven = drive(Simulator(workload.site, table_of(workload.jobs, workload.site)), workload.jobs, BASELINE)
    settings = AdvantageSettings(decisions=10, horizon=math.inf, explored_mem=0.0, explored_urgency=0.0)
    advantages = counterfactual_advantages(workload, BASELINE, settings, np.random.default_rng(0))
    numbers = numbers_of(advantages, workload)
    assert np.abs(advantages.by_term).max() > 0
    for row, (place, shares) in enumerate(zip(numbers, advantages.shares, strict=True)):
        asked = workload.jobs[place]
        allocation = allocation_for(
            Shares(*(float(share) for share in shares)),
            asked.request,
            asked.bounds,
            workload.site.nodes[0].shape,
            functools.partial(slowdown_to_allow, asked.request),
        )
        if allocation.gpus > workload.site.nodes[0].count * workload.site.nodes[0].shape.gpus:
            continue  # no nodes could hold it: the job keeps its request
        sizes = driven.sizes.copy()
        patience_s = workload.site.interception.urgency.patience_s(expected_run_time_s(asked, allocation))
        sizes[place, :5], sizes[place, 6] = list(size_of(allocation).values()), patience_s
        again = Simulator(workload.site, table_of(workload.jobs, workload.site))
        again.run_answered(sizes)
        difference = total_jct_s(driven.outcomes) - total_jct_s(again.outcomes())
        assert np.sign(advantages.by_term[row, TERM_NAMES.index("jct")]) == np.sign(round(difference, 3))


def numbers_of(advantages: counterfactual.Advantages, workload: Workload) -> list[int]:
    """Which job each row is about: the observations of a run name it."""
    seen: dict[bytes, int] = {}
    asked = [0]

    def remember(waiting: list[int]) -> None:
        asked[0] = waiting[0]

    def policy(one: JobView, view: ClusterView) -> Shares:
        seen[INPUTS.row(encode(one, view)).tobytes()] = asked[0]
        return BASELINE(one, view)

    drive(Simulator(workload.site, table_of(workload.jobs, workload.site)), workload.jobs, policy, before=remember)
    assert len(seen) == len(workload.jobs)
    return [seen[observation.tobytes()] for observation in advantages.observation]


def total_jct_s(outcomes: np.ndarray) -> float:
    return float((outcomes["finished_s"] - outcomes["submit_s"]).sum())


def test_answers_given_beforehand_are_as_good_as_asked_for() -> None:
    """Byte by byte, also from the middle of a workload on."""
    workload = crowded()
    clones: list[Simulator] = []
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    middle = len(workload.jobs) // 2

    def keep(waiting: list[int]) -> None:
        if waiting == [middle]:
            clones.append(simulator.clone())

    driven = drive(simulator, workload.jobs, price_ef, before=keep)
    (again,) = clones
    again.resize_all(np.array([middle]), driven.sizes[[middle]])
    again.run_answered(driven.sizes)
    assert again.finished
    assert again.digest() == simulator.digest()


def test_a_size_that_no_node_holds_is_refused() -> None:
    workload = lonely_jobs(3)
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    sizes = sizes_now(simulator)
    sizes[1, 0] = 3
    with pytest.raises(ValueError, match="job 1 could never run"):
        simulator.run_answered(sizes)


def test_a_clone_can_end_the_arrivals() -> None:
    workload = lonely_jobs(5)
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site)).clone(2)
    assert drive(simulator, workload.jobs, price_ef).decided == 2
    assert np.isfinite(simulator.outcomes()["finished_s"]).sum() == 2


def test_other_futures_bring_the_same_jobs_at_the_same_times_in_another_order() -> None:
    workload = crowded()
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    number = int(simulator.run()[0])
    moment = counterfactual._Moment(simulator, number, [])
    sizes = sizes_now(simulator)
    settings = AdvantageSettings(futures=3, horizon=math.inf)
    own, *others = counterfactual._futures(
        moment, workload, KnownBefore.of(workload.jobs), sizes, settings, np.random.default_rng(0)
    )
    came = own.before.world.jobs
    for other in others:
        drawn = other.before.world.jobs
        assert (drawn["submit_s"] == came["submit_s"]).all()
        assert (drawn["work_s"] != came["work_s"]).any()
        assert sorted(drawn["work_s"]) == sorted(came["work_s"])
        assert (drawn["work_s"][: number + 1] == came["work_s"][: number + 1]).all()
        assert [one.work_s for one in other.jobs] == drawn["work_s"].tolist()
        assert [one.submit_s for one in other.jobs] == drawn["submit_s"].tolist()
        patience = drawn["cancel_s"] - drawn["submit_s"]
        assert sorted(patience) == pytest.approx(sorted(came["cancel_s"] - came["submit_s"]))
        assert (other.sizes[:, 4] == drawn["requested_limit_s"]).all()


def test_jobs_that_depend_on_each_other_have_one_future() -> None:
    workload = Workload(site(), (job(0, size(1), managed=True), job(1, size(1), dependencies=(("afterok", 0),))))
    assert len(counterfactual_advantages(workload, price_ef, SMALL, np.random.default_rng(0)).by_term) == 3
    with pytest.raises(ValueError, match="ask for one future"):
        counterfactual_advantages(workload, price_ef, AdvantageSettings(futures=2), np.random.default_rng(0))


@pytest.mark.parametrize(
    "settings", [SMALL, AdvantageSettings(decisions=6, futures=3), AdvantageSettings(2, redecide=True)]
)
def test_the_same_seed_gives_the_same_advantages(settings: AdvantageSettings) -> None:
    one, other = (
        counterfactual_advantages(crowded(), price_ef, settings, np.random.default_rng(1)) for _ in range(2)
    )
    assert len(one.by_term) == settings.rows
    assert (one.by_term == other.by_term).all()
    assert (one.shares == other.shares).all()


def test_advantages_are_of_the_promised_shape() -> None:
    advantages = counterfactual_advantages(crowded(), price_ef, SMALL, np.random.default_rng(1))
    assert advantages.observation.shape == (18, len(INPUTS))
    assert advantages.shares.shape == (18, SHARES)
    assert advantages.by_term.shape == (18, len(TERM_NAMES))


def test_terms_are_counted_side_by_side() -> None:
    """The advantage in a term depends neither on which others are counted nor on their number."""
    settings = msgspec.structs.replace(SMALL, terms=("gpu_held", "jct"))
    two, all_of_them = (
        counterfactual_advantages(crowded(), price_ef, each, np.random.default_rng(1)) for each in (settings, SMALL)
    )
    columns = [TERM_NAMES.index(name) for name in settings.terms]
    np.testing.assert_array_equal(two.by_term, all_of_them.by_term[:, columns])


def test_more_gpus_alone_on_the_cluster_waste_more() -> None:
    """Scaling linearly, they hold the same GPU time and less time in all; nobody waits, and nothing is killed."""
    settings = AdvantageSettings(decisions=20, alternatives=5, explored_cpu=0.0, explored_mem=0.0)
    advantages = counterfactual_advantages(lonely_jobs(20), price_ef, settings, np.random.default_rng(0))
    advantage = dict(zip(TERM_NAMES, advantages.by_term.T, strict=True))
    for name in ("gpu_held", "gpu_waste", "wait", "latency", "out_of_memory", "timeout"):
        assert advantage[name] == pytest.approx(0, abs=1e-3)
    assert np.abs(advantage["jct"]).max() > 0.1
    spread = advantage["network"] != 0
    assert (np.sign(advantage["network"][spread]) == -np.sign(advantage["jct"][spread])).all()


def test_a_workload_shorter_than_its_decisions_gives_what_it_has() -> None:
    settings = msgspec.structs.replace(SMALL, decisions=50)
    assert (
        len(counterfactual_advantages(lonely_jobs(3), price_ef, settings, np.random.default_rng(0)).by_term)
        == 3 * settings.alternatives
    )


def test_a_job_without_a_choice_is_not_asked_about() -> None:
    fixed = job(0, size(4), managed=True)
    bounds = msgspec.structs.replace(fixed.bounds, gpu_counts=(4,))
    workload = Workload(site(), (msgspec.structs.replace(fixed, bounds=bounds), job(1, size(4))))
    assert len(counterfactual_advantages(workload, price_ef, SMALL, np.random.default_rng(0)).by_term) == 0
