"""Agent and trainer may write the store: what they write into the journal changes no job."""

from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import StoreError
from rlalloc.store import Store
from rlalloc.store.journal_seal import JournalKey, JournalSeal
from tests.core.test_store import APPLICATION, DECISION, SIZE
from tests.core.test_store_migrations import run_sql

SEAL = JournalSeal(b"k" * 32)
AGAIN = msgspec.structs.replace(DECISION, id="d2", decided_s=DECISION.decided_s + 60)
JOB = (DECISION.job_id, int(DECISION.submitted_s))
CHANGED = {
    "original": """UPDATE applications SET original = replace(original, '"nodes"\\:', '"nodes"\\:9')""",
    "intended": """UPDATE applications SET intended = replace(intended, '"nodes"\\:', '"nodes"\\:9')""",
    "record": "UPDATE applications SET record = NULL",
    "nice": "UPDATE applications SET own_nice = -2000",
    "begin": "UPDATE applications SET begin_s = 5",
    "job": "UPDATE applications SET job_id = 8",
    "no seal": "UPDATE applications SET seal = NULL",
    "no ASCII": "UPDATE applications SET seal = 'é'",
    "request": """UPDATE decisions SET request = replace(request, '"nodes"\\:', '"nodes"\\:9')""",
}


@pytest.fixture
def store(url: str) -> Store:
    """One decision that was applied and is in force, as rlallocd wrote it."""
    sealed = Store(url, skip_unreadable=True, seal=SEAL)
    sealed.add_decisions([DECISION])
    entered = sealed.journal([APPLICATION])
    sealed.set_applications(entered, "begun", 1002, "let go")
    return sealed


def seen(store: Store) -> int:
    """How many entries it would act on."""
    return len(store.open_applications()) + len(store.begun_since(0)) + len(store.applications("d1"))


def test_its_own_entries_are_read_whatever_becomes_of_them(store: Store) -> None:
    assert seen(store) == 2
    store.set_applications(store.begun_since(0), "restoring", 1003, "it waits for a limit")
    assert (seen(store), store.unreadable) == (2, 0)
    assert len(store.histories([JOB])[JOB].applications) == 1
    store.close()


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_entry_is_left_out(store: Store, url: str, change: str) -> None:
    run_sql(url, CHANGED[change])
    assert (seen(store), store.unreadable) == (0, 1)
    assert store.histories([JOB, (8, 1000)]) == {}
    store.close()


def test_an_entry_of_somebody_else_is_left_out(store: Store, url: str) -> None:
    other = Store(url)
    other.journal([msgspec.structs.replace(APPLICATION, state="restoring", record='{"job_id": 8}')])
    assert store.open_applications() == ()
    assert store.histories([JOB]) == {}
    assert len(other.open_applications()) == 1  # who only reads has no key
    for each in (store, other):
        each.close()


def test_a_request_that_somebody_put_before_the_decision_is_not_the_jobs(store: Store, url: str) -> None:
    """What a job is decided again from, and what it gets back, is what its user asked for."""
    smaller = msgspec.structs.replace(SIZE, gpus_per_node=1)
    forged = msgspec.structs.replace(DECISION, id="d0", decided_s=DECISION.decided_s - 9, request=smaller)
    other = Store(url)
    other.add_decisions([forged])
    assert store.histories([JOB]) == {}
    for each in (store, other):
        each.close()


def test_a_new_key_takes_the_journal_as_it_is(store: Store, url: str) -> None:
    """A store of before there were seals, or a lost key."""
    store.close()
    run_sql(url, "UPDATE applications SET seal = NULL")
    other = Store(url, skip_unreadable=True, seal=JournalSeal(b"n" * 32))
    assert seen(other) == 0
    other.seal_journal()
    assert seen(other) == 2
    other.add_decisions([AGAIN])
    other.journal([msgspec.structs.replace(APPLICATION, decision_id="d2")])
    assert len(other.histories([JOB])[JOB].applications) == 2
    other.close()


def test_a_journal_of_another_machine_is_known(store: Store, url: str) -> None:
    """Who shares the store has to have its key: a new one would make the other's journal unreadable."""
    other = Store(url)
    assert other.has_seals()
    run_sql(url, "UPDATE applications SET seal = NULL")
    assert not other.has_seals()
    for each in (store, other):
        each.close()


def test_the_key_is_for_one_user_and_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "of the daemon" / "journal.key"
    made = JournalKey(path)
    assert made.is_new
    assert not path.exists()  # before the journal is sealed
    made.keep()
    assert path.stat().st_mode & 0o777 == 0o600
    again = JournalKey(path)
    assert not again.is_new
    assert again.seal.of(APPLICATION, "{}") == made.seal.of(APPLICATION, "{}") != SEAL.of(APPLICATION, "{}")


def test_a_key_that_others_may_know_is_refused(tmp_path: Path) -> None:
    path, link, short = tmp_path / "key", tmp_path / "link", tmp_path / "short"
    JournalKey(path).keep()
    link.symlink_to(path)
    short.write_text("ab")
    short.chmod(0o600)
    path.chmod(0o640)
    for file, why in ((path, "others may read it"), (link, "symbolic link"), (short, "found 1 bytes")):
        with pytest.raises(StoreError, match=why):
            JournalKey(file)
