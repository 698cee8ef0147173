"""Promotion is a compare-and-swap, and the row of a version agrees with what is in use."""

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from rlalloc.errors import PolicyError, StoreError
from rlalloc.policy.interrupted_promotion import MENDER, mend_interrupted_promotion
from rlalloc.policy.policies import CURRENT, PolicyStore
from rlalloc.store import PolicyRow, Store
from rlalloc_agent.actor import Actor
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.evaluation.never_worse import SameOrder
from rlalloc_trainer.promotion.candidate_storage import SHIPPED, JudgedCandidate, store_candidate
from rlalloc_trainer.promotion.gate import Evidence, Verdict, judge
from rlalloc_trainer.promotion.policy_versions import new_manifest, version_files
from rlalloc_trainer.sac.soft_actor_critic import new_critics

BETTER = Interval(0.8, 0.75, 0.85)


@pytest.fixture
def policies(tmp_path: Path) -> PolicyStore:
    return PolicyStore(tmp_path / "policies")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'store.sqlite'}")


def better_than(version: str | None) -> JudgedCandidate:
    actor = Actor()
    evidence = Evidence(
        candidate="the candidate",
        current=version or "shipped",
        against_current=BETTER,
        against_heuristics={"price-ef": BETTER},
        same_order=SameOrder(jct=BETTER, p95=BETTER, killed=0.0, worst_user=None),
        current_same_order=SameOrder(jct=BETTER, p95=BETTER, killed=0.0, worst_user=None),
        killed_candidate=0,
        killed_current=0,
        held_out_jobs=100,
        workloads=40,
        confidence=0.9,
    )
    verdict = judge(evidence)
    assert verdict.promote
    files = version_files(actor, new_critics(actor, 2, 0))
    return JudgedCandidate(files, new_manifest(actor, version, {}, {}), verdict, version)


def promoted_by_somebody(policies: PolicyStore) -> str:
    candidate = better_than(None)
    version = policies.add(candidate.files, candidate.manifest)
    policies.promote(version)
    return version


def row_of(store: Store, version: str) -> PolicyRow:
    return next(row for row in store.policies() if row.version == version)


def test_what_beats_the_version_in_use_is_promoted(policies: PolicyStore, store: Store) -> None:
    first, verdict = store_candidate(better_than(None), policies, store)
    second, _ = store_candidate(better_than(first), policies, store)
    assert verdict.promote
    assert policies.current() == second
    assert policies.promotions()[-1].by == "rlalloc train run"
    assert all(row.promoted for row in store.policies())


@pytest.mark.parametrize("stored", [False, True], ids=["the shipped policy was in use", "a version was in use"])
def test_a_version_promoted_meanwhile_stays(policies: PolicyStore, store: Store, stored: bool) -> None:
    measured_against = promoted_by_somebody(policies) if stored else None
    candidate = better_than(measured_against)
    meanwhile = promoted_by_somebody(policies)
    version, verdict = store_candidate(candidate, policies, store)
    assert policies.current() == meanwhile
    assert not verdict.promote
    assert f"{meanwhile} came into use while it was compared with {measured_against or SHIPPED}" in verdict.reason
    row = row_of(store, version)
    assert not row.promoted
    assert row.verdict["reason"] == policies.manifest(version).evaluation["reason"] == verdict.reason


def test_two_trainers_that_beat_the_same_version(policies: PolicyStore, store: Store) -> None:
    """Both measured against the same one: the first to finish is promoted, the other is not."""
    base = promoted_by_somebody(policies)
    candidates = [better_than(base), better_than(base)]
    begin, results = threading.Barrier(2), []

    def finish(candidate: JudgedCandidate) -> None:
        begin.wait()
        results.append(store_candidate(candidate, policies, store))

    trainers = [threading.Thread(target=finish, args=(candidate,)) for candidate in candidates]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join()
    (won,) = [version for version, verdict in results if verdict.promote]
    assert policies.current() == won
    assert [row.version for row in store.policies() if row.promoted] == [won]


def test_nothing_is_promoted_without_its_row(
    policies: PolicyStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = promoted_by_somebody(policies)

    @contextmanager
    def full(_row: PolicyRow) -> Iterator[None]:
        yield
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "adding_policy", full)
    with pytest.raises(StoreError, match="full"):
        store_candidate(better_than(base), policies, store)
    assert policies.current() == base
    taken_back = policies.promotions()[-1]
    assert (taken_back.version, taken_back.before, taken_back.undoes) == (base, "v000002", True)


def test_a_store_that_cannot_be_written_is_found_out_before_the_switch(
    policies: PolicyStore, store: Store, tmp_path: Path
) -> None:
    """Where the database says "attempt to write a readonly database", nothing is promoted unrecorded."""
    base = promoted_by_somebody(policies)
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("DROP TABLE policies")
    with pytest.raises(StoreError):
        store_candidate(better_than(base), policies, store)
    assert policies.current() == base
    assert policies.promotions()[-1].version == base


def test_no_row_where_promoting_failed(policies: PolicyStore, store: Store) -> None:
    (policies.directory / CURRENT).mkdir(parents=True)  # nothing can be renamed over a folder
    with pytest.raises(PolicyError, match="cannot put v000001 in use"):
        store_candidate(better_than(None), policies, store)
    assert store.policies() == ()


def promote_and_die(folder: Path, after_the_switch: bool) -> None:
    """Promote as a training does; be killed once the change is noted, before or after ``current`` is switched."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    class Dying(PolicyStore):
        def put_in_use(self, *args: Any, **words: Any) -> None:
            super().put_in_use(*args, **words)
            die()

    policies = (Dying if after_the_switch else PolicyStore)(folder / "policies")
    store = Store(f"sqlite:///{folder / 'store.sqlite'}")
    with contextlib.ExitStack() as stack:
        if not after_the_switch:
            stack.enter_context(mock.patch.object(Path, "symlink_to", die))
        store_candidate(better_than(policies.current()), policies, store)


@pytest.mark.parametrize("after_the_switch", [False, True])
def test_a_promotion_that_was_killed_is_put_right(
    policies: PolicyStore, store: Store, tmp_path: Path, after_the_switch: bool
) -> None:
    """SIGKILL between the note, the switch and the row: afterwards all three agree, and a rollback finds its way."""
    base, _ = store_candidate(better_than(None), policies, store)
    killed = multiprocessing.get_context("spawn").Process(target=promote_and_die, args=(tmp_path, after_the_switch))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert policies.promotions()[-1].version == "v000002"
    assert policies.current() == ("v000002" if after_the_switch else base)
    assert [row.version for row in store.policies()] == [base]
    with policies.locked():  # a training that promotes now does it itself
        assert mend_interrupted_promotion(policies, store, wait=False) == ()
    done = " ".join(mend_interrupted_promotion(policies, store, wait=False))
    assert "v000002" in done
    assert row_of(store, "v000002").promoted == after_the_switch
    assert row_of(store, "v000002").verdict == policies.manifest("v000002").evaluation
    assert policies.promotions()[-1].version == policies.current()
    assert (policies.promotions()[-1].by == MENDER) != after_the_switch
    assert mend_interrupted_promotion(policies, store, wait=True) == ()
    assert policies.roll_back(by="somebody", reason="") == (base if after_the_switch else "shipped")


def test_a_version_of_another_place_is_not_recorded(policies: PolicyStore, store: Store) -> None:
    """One that no gate judged here, and one whose manifest is damaged."""
    promoted_by_somebody(policies)
    store_candidate(better_than("v000001"), policies, store)
    promoted_by_somebody(policies)
    (policies.path("v000003") / "manifest.json").write_text("{")
    assert mend_interrupted_promotion(policies, store, wait=True) == ()
    assert [row.version for row in store.policies()] == ["v000002"]


def test_a_refused_candidate_stays_refused(policies: PolicyStore, store: Store) -> None:
    base = promoted_by_somebody(policies)
    candidate = better_than(None)
    refused = Verdict(promote=False, reason="it is worse", evidence=candidate.verdict.evidence)
    _, verdict = store_candidate(candidate._replace(verdict=refused), policies, store)
    assert verdict == refused
    assert policies.current() == base
    assert msgspec.to_builtins(refused) == store.policies()[0].verdict
