"""Retraining on a site's experience, from the store to a promoted version."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from rlalloc.config import TrainerSection
from rlalloc.devices import is_slice
from rlalloc.errors import PolicyError
from rlalloc.heuristics import ALTERNATIVES, AS_REQUESTED_NAME, BASELINE_NAME
from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES
from rlalloc.observation import FEATURES, POOL_FEATURES, SCHEMA_ID, encode, type_features
from rlalloc.policy.policies import ACTOR_FILE, PolicyStore, Routing, verify
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS, PolicyInputs
from rlalloc.reward import rewards
from rlalloc.speed import PRIOR
from rlalloc.speed.type_speeds import TypeSpeeds
from rlalloc.store import Experience
from rlalloc.urgency import UrgencyRules
from rlalloc_agent.actor import Actor, actor_bytes, load_actor
from rlalloc_simulator.comparison.compared_policy import HeuristicPolicy
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.engine.policy_views import cluster_view, job_view
from rlalloc_simulator.recorded_outcomes import Observed
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_trainer.pipelines import retrain as module
from rlalloc_trainer.pipelines.calibrated_simulator import (
    LEAST_JOBS,
    MOST_JOBS,
    calibrated_site,
    resampled,
    scaling_exponents,
    workload_jobs,
)
from rlalloc_trainer.pipelines.retrain import load_in_use, real_advantages, retrain
from rlalloc_trainer.pipelines.site_experience import costs_of, observations_of, shares_of, split_by_time, usable
from rlalloc_trainer.promotion import held_out_evidence as held_out
from rlalloc_trainer.promotion.gate import Verdict, judge
from rlalloc_trainer.promotion.held_out_evidence import CANDIDATE, HeldOut, measure
from rlalloc_trainer.promotion.policy_versions import (
    CRITICS_FILE,
    load_shipped_version,
    load_version,
    new_manifest,
    version_files,
)
from rlalloc_trainer.sac.conditioned_critics import COLUMNS, TERMS, WeightConditionedCritics
from rlalloc_trainer.sac.critics import Critics, EnsemblePerceptron
from tests.agent.running_server import add_version
from tests.trainer.sites import NODES, changed, experience_of, site_workload, stored

NAMES = {SCHEMA_ID: FEATURES}
SMALL = TrainerSection(steps=30, min_experience=20)


@pytest.fixture(scope="module")
def experiences() -> list[Experience]:
    return experience_of(site_workload(1))


@pytest.fixture
def few_and_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the product has it, but with little work and without starting processes."""
    for name, value in {"TRAIN_WORKLOADS": 2, "CHOICE_WORKLOADS": 2, "HELD_OUT_WORKLOADS": 4, "WORKERS": 1}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "workload_jobs", lambda _: 25)


def test_too_little_experience_is_said_and_nothing_done(experiences: list[Experience], tmp_path: Path) -> None:
    store = stored(experiences[:19], tmp_path / "store.sqlite")
    policies = PolicyStore(tmp_path / "policies")
    result = retrain(store, policies, SMALL)
    assert not result.trained
    assert result.reason.startswith("19 jobs")
    assert "trainer.min_experience asks for 20" in result.reason
    assert policies.versions() == ()
    assert store.policies() == ()
    store.close()


@pytest.mark.usefixtures("few_and_in_this_process")
def test_a_candidate_is_stored_with_its_verdict(experiences: list[Experience], tmp_path: Path) -> None:
    store = stored(experiences, tmp_path / "store.sqlite")
    policies = PolicyStore(tmp_path / "policies")
    steps: list[float] = []
    result = retrain(store, policies, SMALL, lambda _what, done: steps.append(done))
    assert result.trained
    assert result.version is not None
    assert policies.versions() == (result.version,)
    manifest = verify(policies.path(result.version))
    assert manifest.parent == load_shipped_version().version
    assert set(manifest.files) == {ACTOR_FILE, CRITICS_FILE}
    assert manifest.evaluation["reason"] == result.reason
    (row,) = store.policies()
    assert (row.version, row.promoted) == (result.version, result.promoted)
    assert row.verdict == manifest.evaluation
    assert policies.current() == (result.version if result.promoted else None)
    assert steps == sorted(steps)
    assert 0 < steps[0] <= steps[-1] <= 1
    store.close()


@pytest.mark.slow
@pytest.mark.usefixtures("few_and_in_this_process")
def test_a_promotion_meanwhile_is_not_overwritten(
    experiences: list[Experience], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin promotes a version while the candidate is trained and measured."""
    monkeypatch.setattr(held_out, "judge", lambda evidence: msgspec.structs.replace(judge(evidence), promote=True))
    store = stored(experiences, tmp_path / "store.sqlite")
    policies = PolicyStore(tmp_path / "policies")
    admins = add_version(policies, Actor())

    def promote_while_judging(what: str, _done: float) -> None:
        if what == "judging":
            policies.promote(admins)

    result = retrain(store, policies, SMALL, promote_while_judging)
    assert policies.current() == admins
    assert not result.promoted
    assert f"{admins} came into use while it was compared with the shipped policy" in result.reason
    assert [row.promoted for row in store.policies()] == [False]
    store.close()


@pytest.mark.slow
@pytest.mark.usefixtures("few_and_in_this_process")
@pytest.mark.parametrize("promote", [True, False])
def test_only_the_gates_yes_promotes(
    experiences: list[Experience], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promote: bool
) -> None:
    monkeypatch.setattr(held_out, "judge", lambda evidence: msgspec.structs.replace(judge(evidence), promote=promote))
    store = stored(experiences, tmp_path / "store.sqlite")
    policies = PolicyStore(tmp_path / "policies")
    first = retrain(store, policies, SMALL)
    assert first.promoted is promote
    assert policies.current() == (first.version if promote else None)
    second = retrain(store, policies, SMALL)
    assert second.version == "v000002"
    expected_parent = first.version if promote else load_shipped_version().version
    assert policies.manifest("v000002").parent == expected_parent
    store.close()


@pytest.mark.slow
@pytest.mark.usefixtures("few_and_in_this_process")
def test_the_same_seed_makes_the_same_policy(experiences: list[Experience], tmp_path: Path) -> None:
    digests = []
    for name in ("one", "other"):
        store = stored(experiences, tmp_path / f"{name}.sqlite")
        policies = PolicyStore(tmp_path / name)
        version = retrain(store, policies, SMALL).version
        assert version is not None
        digests.append(policies.manifest(version).files)
        store.close()
    assert digests[0] == digests[1]


@pytest.mark.usefixtures("few_and_in_this_process")
def test_as_requested_is_in_use_like_every_version_until_another_passes(
    experiences: list[Experience], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One night the policy in use is found worse than as requested, and nothing else passes; the next, one does."""
    store, policies = stored(experiences, tmp_path / "store.sqlite"), PolicyStore(tmp_path / "policies")
    monkeypatch.setattr(held_out, "judge", lambda evidence: msgspec.structs.replace(judge(evidence), promote=False))
    monkeypatch.setattr(
        held_out, "judge_in_use", lambda evidence: Verdict(promote=True, reason="it harms", evidence=evidence)
    )
    result = retrain(store, policies, SMALL)
    assert (result.promoted, result.version, policies.current()) == (True, "v000001", "v000001")
    manifest = verify(policies.path("v000001"))
    assert manifest.routing == Routing.by(AS_REQUESTED_NAME)
    assert manifest.training == {"kept_from": load_shipped_version().version}
    assert policies.promotions()[-1].reason == store.policies()[-1].verdict["reason"] == "it harms"

    monkeypatch.setattr(held_out, "judge", lambda evidence: msgspec.structs.replace(judge(evidence), promote=True))
    again = retrain(store, policies, SMALL)
    assert again.verdict is not None
    assert again.verdict.evidence.current == "v000001"
    assert again.verdict.evidence.current_same_order.jct.estimate == 1.0
    assert policies.current() == again.version == "v000002"
    store.close()


def test_a_damaged_policy_in_place_is_an_error(experiences: list[Experience], tmp_path: Path) -> None:
    policies = PolicyStore(tmp_path / "policies")
    version = add_version(policies, Actor())
    policies.promote(version)
    (policies.path(version) / ACTOR_FILE).write_bytes(b"damaged")
    with pytest.raises(PolicyError, match="promote another version"):
        load_in_use(policies, version)


def test_a_version_keeps_its_critics(tmp_path: Path) -> None:
    actor = Actor()
    shape = actor.inputs, actor.actions, actor.hidden
    kept = load_version(_stored_copy(actor, WeightConditionedCritics(*shape, members=3), tmp_path)).critics
    assert kept is not None
    assert kept.members == 3
    assert load_version(PolicyStore(tmp_path).path(add_version(PolicyStore(tmp_path), Actor()))).critics is None


def test_critics_of_an_earlier_rlalloc_are_left_behind(tmp_path: Path) -> None:
    """They had a value of the situation, too. A retraining from such a version starts with new critics."""
    actor = Actor()
    with_a_value = WeightConditionedCritics(actor.inputs, actor.actions, actor.hidden)
    with_a_value.value = EnsemblePerceptron(2, actor.features - TERMS, actor.hidden, COLUMNS)
    assert load_version(_stored_copy(actor, with_a_value, tmp_path)).critics is None


def test_critics_that_fit_no_actor_are_refused(tmp_path: Path) -> None:
    actor = Actor()
    with pytest.raises(PolicyError, match="does not fit its actor"):
        load_version(_stored_copy(actor, WeightConditionedCritics(actor.inputs, actor.actions, (8, 8)), tmp_path))


def _stored_copy(actor: Actor, critics: Critics, folder: Path) -> Path:
    store = PolicyStore(folder)
    files = version_files(actor, critics)
    version = store.add(files, new_manifest(actor, None, {}, {}))
    loaded, _ = load_actor(store.path(version))
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), actor.parameters(), strict=True))
    return store.path(version)


def test_what_cannot_be_learned_from_is_left_out(experiences: list[Experience]) -> None:
    bad = [
        changed(experiences[0], executed_shares=None),
        changed(experiences[1], started_s=None),
        changed(experiences[2], costs=None),
        Experience(
            decision=msgspec.structs.replace(experiences[3].decision, observation_schema=99),
            outcome=experiences[3].outcome,
        ),
        Experience(
            decision=msgspec.structs.replace(experiences[4].decision, observation=b"short"),
            outcome=experiences[4].outcome,
        ),
    ]
    assert usable([*bad, *experiences[5:]], NAMES) == experiences[5:]


def test_the_split_is_by_time(experiences: list[Experience]) -> None:
    shuffled = [experiences[number] for number in np.random.default_rng(0).permutation(len(experiences))]
    train, held_out = split_by_time(usable(shuffled, NAMES), 0.3)
    assert (len(train), len(held_out)) == (42, 18)
    assert max(one.decision.decided_s for one in train) <= min(one.decision.decided_s for one in held_out)


def test_what_was_executed_and_what_it_cost(experiences: list[Experience]) -> None:
    assert observations_of(experiences, PolicyInputs()).shape == (60, len(DEFAULT_INPUTS))
    assert shares_of(experiences).shape == (60, SHARES)
    cost = costs_of(experiences, (*TERM_NAMES, "gold"))
    assert cost.shape == (60, len(TERM_NAMES) + 1)
    assert np.isnan(cost[:, -1]).all()
    expected = [one.outcome.reward for one in experiences]
    assert rewards(-cost[:, :-1], DEFAULT_WEIGHTS.array) == pytest.approx(expected)


def test_the_calibrated_simulator_has_the_sites_cluster_and_jobs(experiences: list[Experience]) -> None:
    site, jobs = calibrated_site(experiences, experiences)
    assert [(kind.count, kind.shape) for kind in site.nodes] == [(NODES.count, NODES.shape)]
    assert len(jobs) == sum(one.outcome.state != "OUT_OF_MEMORY" for one in experiences)
    for job, one in zip(jobs, (e for e in experiences if e.outcome.state != "OUT_OF_MEMORY"), strict=True):
        assert one.decision.allocation is not None
        run_time_s = one.outcome.ended_s - (one.outcome.started_s or 0.0)
        size = one.decision.allocation
        assert job.work_s / job.curve.at(size.gpus, size.cpus_per_gpu) == pytest.approx(max(1.0, run_time_s))


@pytest.mark.parametrize(
    ("gpu_type", "others"), [("h100", 12), ("1g.10gb", 0), ("v100", 0), ("mi300x", 4), ("h200", 0), ("", 1)]
)
def test_the_calibrated_simulator_shows_a_policy_the_pool_that_it_saw(
    experiences: list[Experience], gpu_type: str, others: int
) -> None:
    """The gate judges a policy there, so it has to see there what it sees of the site."""
    speed, memory = type_features((gpu_type,), TypeSpeeds((("mi300x", 2.8),)))
    part = math.log2(NODES.count / (NODES.count + others)) / 8
    pool = dict(zip(POOL_FEATURES, (speed, memory, part, float(is_slice(gpu_type))), strict=True))
    saw = np.frombuffer(experiences[-1].decision.observation or b"", "<f4").copy()
    for name, value in pool.items():
        saw[FEATURES.index(name)] = value
    decision = msgspec.structs.replace(experiences[-1].decision, observation=saw.tobytes())
    last = msgspec.structs.replace(experiences[-1], decision=decision)
    site, jobs = calibrated_site([*experiences[:-1], last], experiences)
    simulator = Simulator(site, table_of(jobs, site))
    number = int(simulator.run()[0])
    shown = encode(job_view(simulator, number, jobs[number]), cluster_view(simulator, number)).by_name()
    assert {name: shown[name] for name in POOL_FEATURES} == pytest.approx(pool, abs=1e-5)


def test_how_jobs_scale_is_read_from_their_run_times(experiences: list[Experience]) -> None:
    """Jobs of one name, on 1 to 8 GPUs, that scale as the square root of the prior."""
    made = []
    for gpus in (1, 2, 4, 8):
        run_time_s = 1000.0 / PRIOR.at(gpus, 4.0) ** 0.5
        one = changed(experiences[0], gpus=gpus, cpus=4 * gpus, started_s=0.0, ended_s=run_time_s, state="COMPLETED")
        made.append(one)
    job_class = experiences[0].decision.job_class
    assert scaling_exponents(made * 10)[job_class] == pytest.approx(0.5, abs=0.02)
    assert 0.5 < scaling_exponents(made)[job_class] < 1.0
    assert scaling_exponents([]) == {}


def test_resampled_workloads_keep_the_sites_jobs_and_pace(experiences: list[Experience]) -> None:
    site = calibrated_site(experiences, experiences)
    workloads = resampled(site, 300, 50, np.random.default_rng(0))
    works = {job.work_s for job in site.jobs}
    assert all(job.work_s in works for workload in workloads for job in workload.jobs)
    ours = np.mean([workload.jobs[-1].submit_s / 50 for workload in workloads])
    theirs = (site.jobs[-1].submit_s - site.jobs[0].submit_s) / (len(site.jobs) - 1)
    assert ours == pytest.approx(theirs, rel=0.1)


def test_resampled_workloads_are_pieces_of_the_history(experiences: list[Experience]) -> None:
    """Four a workload, of jobs one after the other with the gaps that were between them; faster where asked."""
    site = calibrated_site(experiences, experiences)
    (workload,) = resampled(site, 1, 42, np.random.default_rng(0), pace=(2.0, 2.0))
    history = [(job.work_s, job.submit_s) for job in (*site.jobs, *site.jobs)]
    works = [work_s for work_s, _ in history]
    assert len(workload.jobs) == 42
    for first in range(0, 42, 11):
        piece = workload.jobs[first : first + 11]
        begin = works.index(piece[0].work_s)
        assert [job.work_s for job in piece] == works[begin : begin + len(piece)]
        if begin + len(piece) <= len(site.jobs):
            gaps = np.diff([submit_s for _, submit_s in history[begin : begin + len(piece)]])
            assert np.diff([job.submit_s for job in piece]) == pytest.approx(gaps / 2.0)


@pytest.mark.parametrize(("faster", "jobs"), [(0.01, LEAST_JOBS), (1.0, 200), (1000.0, MOST_JOBS)])
def test_a_workload_is_so_long_that_it_fills_the_site(
    experiences: list[Experience], faster: float, jobs: int
) -> None:
    """Of a site where twenty run at a time, ten times as many."""
    site = calibrated_site(experiences, experiences)
    one = next(job for job in site.jobs if job.request.gpus == 1)
    run_s = one.work_s / one.curve.at(1, one.request.cpus_per_gpu)
    regular = Workload(
        site.site,
        tuple(msgspec.structs.replace(one, submit_s=number * run_s / 20 / faster) for number in range(1001)),
    )
    assert workload_jobs(regular) == pytest.approx(jobs, rel=0.002)


@pytest.mark.usefixtures("few_and_in_this_process")
def test_a_heuristic_can_be_the_candidate(
    experiences: list[Experience], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a site where it was the best on the earlier experience; where urgency counts, also in its order."""
    name = next(name for name in ALTERNATIVES if name.startswith("marginal-gain"))
    way = Routing.by(name)
    monkeypatch.setattr(module, "choose_routing", lambda *_: (way, {}))
    monkeypatch.setattr(held_out, "judge", lambda evidence: msgspec.structs.replace(judge(evidence), promote=True))
    store, policies = stored(experiences, tmp_path / "store.sqlite"), PolicyStore(tmp_path / "policies")
    result = retrain(store, policies, SMALL, urgency=UrgencyRules(nice_band=10_000))
    store.close()
    assert result.version is not None
    manifest, shipped = policies.manifest(result.version), load_shipped_version()
    assert (manifest.routing, manifest.training) == (way, {"kept_from": shipped.version})
    kept = load_version(policies.path(result.version))
    assert actor_bytes(kept.actor) == actor_bytes(shipped.actor)  # another objective is answered as before
    assert result.verdict is not None
    assert result.verdict.evidence.against_heuristics[name].estimate == pytest.approx(1.0, abs=1e-3)


def test_urgency_counts_in_the_calibrated_simulator_where_it_does_on_the_site(experiences: list[Experience]) -> None:
    assert calibrated_site(experiences, experiences).site.interception.urgency.nice_band == 0
    rules = UrgencyRules(nice_band=500, patience=2.0)
    assert calibrated_site(experiences, experiences, rules).site.interception.urgency == rules


def test_a_policy_against_itself_is_no_better(experiences: list[Experience]) -> None:
    site = calibrated_site(experiences, experiences)
    workloads = resampled(site, 3, 20, np.random.default_rng(0))
    current = msgspec.structs.replace(load_shipped_version(), actor=Actor())
    name = BASELINE_NAME
    measured = HeldOut(measure(HeuristicPolicy(name), current, workloads, map), current.version, 60, 0.9)
    evidence = measured.evidence(CANDIDATE, 0.9)
    assert evidence.against_heuristics[name].estimate == 1.0
    assert set(evidence.against_heuristics) == {"as-requested", "repaired", *ALTERNATIVES, BASELINE_NAME}
    assert evidence.against_current.estimate == pytest.approx(1.0, abs=0.05)


def test_real_rewards_are_read_against_what_the_simulator_expects() -> None:
    """A cost that the situation explains, less the advantage of the decision: the latter remains, term by term."""
    generator = np.random.default_rng(0)
    observation = generator.uniform(-1, 1, (500, len(DEFAULT_INPUTS))).astype(np.float32)
    explained = 2 * observation[:, 7] - observation[:, 3]
    simulated = Observed(observation, np.stack((explained + 1, explained), axis=1))
    won = np.where(generator.random(500) < 0.5, 0.5, -0.5)
    cost = np.stack((explained + 3 - won, np.full(500, np.nan)), axis=1)
    advantage = real_advantages(observation, cost, [simulated])
    assert advantage[:, 0] == pytest.approx(won - won.mean(), abs=0.15)
    assert np.isnan(advantage[:, 1]).all()
