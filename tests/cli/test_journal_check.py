"""What ``rlalloc doctor`` says of the journal's key, and of entries that rlallocd did not write."""

import json
import os
import pwd
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import Config
from rlalloc.store import Store
from rlalloc.store.journal_seal import JournalKey
from rlalloc_cli.doctor.doctor_report import EXIT, findings_as_json
from rlallocd.checks.finding import Finding, worst
from rlallocd.checks.journal_check import journal_findings
from tests.core.test_store import APPLICATION, DECISION
from tests.core.test_store_migrations import run_sql

ME = pwd.getpwuid(os.geteuid()).pw_name


def told(config: Config) -> Finding:
    """The one line."""
    (finding,) = journal_findings(config, ME)
    assert finding.what == "journal"
    return finding


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Of a store with one entry that is open, as rlallocd sealed it, and one that has ended."""
    default = Config()
    store = msgspec.structs.replace(
        default.store, url=f"sqlite:///{tmp_path}/store.sqlite", key_file=tmp_path / "journal.key"
    )
    key = JournalKey(store.key_file)
    key.keep()
    sealed = Store(store.url, seal=key.seal)
    sealed.add_decisions([DECISION])
    entered = sealed.journal([APPLICATION, APPLICATION])
    sealed.set_applications(entered[:1], "begun", 1002, "let go")
    sealed.close()
    return msgspec.structs.replace(default, store=store)


def test_a_journal_as_rlallocd_wrote_it_is_ok(config: Config) -> None:
    assert told(config) == Finding("OK", "journal", "2 entries have the seal of rlallocd")


def test_a_broken_seal_is_told_with_its_remedy(config: Config) -> None:
    """Also of an entry that is older than the newest, but open; and the line is gone once the remedy is applied."""
    run_sql(config.store.url, "UPDATE applications SET own_nice = -2000 WHERE id = 2")
    run_sql(config.store.url, "UPDATE applications SET id = id + 5000 WHERE id = 1")
    found = told(config)
    assert (found.level, found.checked) == ("FAIL", True)
    assert "1 of 2 entries are not as rlallocd wrote them" in found.found
    assert f"rm {config.store.key_file}" in found.remedy
    assert json.loads(findings_as_json([found]))["worst"] == "FAIL"
    assert EXIT[worst([found])] == 1
    config.store.key_file.unlink()
    key = JournalKey(config.store.key_file)
    with_new_key = Store(config.store.url, seal=key.seal)
    with_new_key.seal_journal()
    with_new_key.close()
    key.keep()
    assert told(config).level == "OK"


def test_the_key_of_another_store_breaks_all_seals(config: Config) -> None:
    config.store.key_file.unlink()
    JournalKey(config.store.key_file).keep()
    assert "2 of 2 entries" in told(config).found


def test_a_key_that_is_gone_is_told_before_the_next_start(config: Config) -> None:
    """Then rlallocd would take the journal for its own; one that several machines share, it does not."""
    config.store.key_file.unlink()
    assert told(config).level == "WARN"
    assert "accepts the journal that is in the store" in told(config).found
    shared = msgspec.structs.replace(config.store, url=f"{config.store.url}?shared=yes")
    found = told(msgspec.structs.replace(config, store=shared))
    assert (found.level, "copy it from the machine" in found.remedy) == ("FAIL", True)
    run_sql(config.store.url, "UPDATE applications SET seal = NULL")
    assert told(config).level == "OK"


@pytest.mark.parametrize(("content", "mode", "why"), [(None, 0o640, "others may read it"), ("ab", 0o600, "found 1")])
def test_a_key_that_cannot_be_used_is_told(config: Config, content: str | None, mode: int, why: str) -> None:
    if content is not None:
        config.store.key_file.write_text(content)
    config.store.key_file.chmod(mode)
    found = told(config)
    assert (found.level, why in found.found) == ("FAIL", True)
    assert f"chown {ME} {config.store.key_file}; chmod 600 {config.store.key_file}" in found.remedy


def test_a_journal_that_cannot_be_read_is_told(config: Config) -> None:
    run_sql(config.store.url, "DROP TABLE applications")
    assert (told(config).level, "no such table" in told(config).found) == ("FAIL", True)


def test_who_cannot_look_says_so(config: Config) -> None:
    """A store that is not there has a line of its own."""
    (found,) = journal_findings(config, "no-such-user")
    assert (found.level, found.checked) == ("WARN", False)
    Path(config.store.url.removeprefix("sqlite:///")).unlink()
    assert journal_findings(config, ME) == []
