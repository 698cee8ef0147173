"""Which of two rlallocd acts, by hand clocks: it never happens that both do, nor that none does for long."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from rlalloc.config import Config, PolicySection, StoreSection
from rlalloc.errors import LeaseLost, StoreError
from rlalloc.store import Store
from rlalloc.store.journal_seal import JournalSeal
from rlallocd.process import site_connection
from rlallocd.process.control_lease import RENEW_AFTER_S, SLACK_S, ControlLease, Turn
from rlallocd.process.site_connection import SiteConnection
from rlallocd.slurm import ControllerPing, Slurm, SlurmUnavailable, host_of_this_machine, why_not_in_control
from rlallocd.slurm.controllers import controllers_in, read_pings

from .hand_clock import HandClock
from .slurm_in_memory import SlurmInMemory

TIMEOUT_S = 10.0
LASTS_S = TIMEOUT_S + SLACK_S
MINE = Turn("", others_acted=False)


class Site:
    """A cluster with two slurmctld, and an rlallocd on each of their hosts, as far as leases go."""

    def __init__(self, directory: Path) -> None:
        self.url = f"sqlite:///{directory}/store.sqlite?shared=yes"
        self.slurm = SlurmInMemory()
        self.slurm.config = msgspec.structs.replace(self.slurm.config, controllers=("a", "b"))
        self.slurm.command_timeout_s = TIMEOUT_S
        self.slurm.down = set()
        self.clocks: list[HandClock] = []
        self.stores: list[Store] = []

    def rlallocd(self, host: str, url: str = "", key: bytes = b"key") -> tuple[ControlLease, HandClock]:
        """One that has just been started on a host."""
        store, clock = Store(url or self.url, seal=JournalSeal(key)), HandClock(1000.0 * len(self.clocks))
        self.stores.append(store)
        self.clocks.append(clock)
        slurm = cast("Slurm", self.slurm)
        return ControlLease(store, url or self.url, slurm, f"{host}.example.org", clock), clock

    def pass_time(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.now_s += seconds


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for store in made.stores:
        store.close()


def test_the_first_that_answers_is_in_control() -> None:
    """As `scontrol ping` prints it, from 22.05 to 26.05."""
    text = "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b.example.org is UP\n** RESTORE SLURMCTLD …\n"
    pings = read_pings(text)
    assert pings == (ControllerPing("a", up=False), ControllerPing("b.example.org", up=True))
    assert why_not_in_control(pings, "b.example.org") == ""
    assert why_not_in_control(pings, "a") == "slurmctld on a does not answer"
    both = read_pings("Slurmctld(primary) at a is UP\nSlurmctld(backup1) at b is UP\nSlurmctld(backup2) at c is DOWN")
    assert why_not_in_control(both, "a") == ""
    assert why_not_in_control(both, "b") == "slurmctld on a is in control"
    assert controllers_in("SlurmctldHost[0]        = a(10.0.0.1)\nSlurmctldHost[1] = b.example.org\nX = y") == (
        *("a", "b.example.org"),
    )
    assert [host_of_this_machine(("a", "b.example.org"), name) for name in ("a.cluster", "b", "c")] == [
        *("a", "b.example.org", "")
    ]


def test_the_one_beside_the_slurmctld_in_control_acts(site: Site) -> None:
    (first, _), (second, _) = site.rlallocd("a"), site.rlallocd("b")
    assert first.keep() == MINE
    assert second.keep().why_not == "slurmctld on a is in control"
    for _ in range(3):
        site.pass_time(5.0)
        assert first.keep() == MINE
        assert second.keep().why_not


def test_it_hands_over_at_once_when_it_sees_that_its_slurmctld_is_gone(site: Site) -> None:
    """The other begins anew; after its return the first one does, since the other has acted."""
    (first, _), (second, _) = site.rlallocd("a"), site.rlallocd("b")
    assert first.keep() == MINE
    site.slurm.down = {"a"}
    assert first.keep() == Turn("slurmctld on a does not answer", others_acted=False)
    assert second.keep() == Turn("", others_acted=True)
    assert first.keep().others_acted
    site.slurm.down = set()
    assert second.keep() == Turn("slurmctld on a is in control", others_acted=False)
    assert first.keep() == Turn("", others_acted=True)
    site.pass_time(5.0)
    assert second.keep().others_acted


def test_it_goes_on_where_its_slurmctld_was_only_restarted(site: Site) -> None:
    """A backup that waits to take over answers pings; that is not control yet. Nobody has acted meanwhile."""
    (first, _), (second, _) = site.rlallocd("a"), site.rlallocd("b")
    assert first.keep() == MINE
    site.slurm.down = {"a"}
    site.slurm.called = fail_at("scontrol show", SlurmUnavailable("Slurm backup controller in standby mode"))
    assert first.keep().why_not
    with pytest.raises(SlurmUnavailable):
        second.keep()
    site.slurm.down, site.slurm.called = set(), lambda _: None
    assert first.keep() == MINE
    assert second.keep().why_not


def test_one_that_was_killed_is_waited_for(site: Site) -> None:
    """By the waiting one's own clock, since it last saw a renewal; whatever the clocks of both show."""
    (first, _), (second, clock) = site.rlallocd("a"), site.rlallocd("b")
    assert first.keep() == MINE
    site.slurm.down = {"a"}
    assert second.keep().why_not == f"rlallocd on a has not given up: {LASTS_S:g} s at most"
    clock.now_s += LASTS_S - 0.1
    assert second.keep().why_not
    clock.now_s += 0.2
    assert second.keep() == Turn("", others_acted=True)


def test_with_the_usual_settings_a_killed_one_is_followed_within_30_s() -> None:
    """The other looks at the lease once a cycle, so at most one cycle after the lease has ended."""
    config = Config()
    assert config.slurm.command_timeout_s + SLACK_S + config.daemon.poll_s < 30.0


def test_one_that_was_killed_is_not_waited_for_on_its_own_host(site: Site) -> None:
    first, _ = site.rlallocd("a")
    assert first.keep() == MINE
    again, _ = site.rlallocd("a")
    assert again.keep() == Turn("", others_acted=True)


def test_one_that_slept_changes_no_job_any_more(site: Site) -> None:
    """It still believes that it acts. Before an update it finds out."""
    (first, clock), (second, other_clock) = site.rlallocd("a"), site.rlallocd("b")
    assert first.keep() == MINE
    first.confirm()
    site.slurm.down = {"a"}
    second.keep()
    other_clock.now_s += LASTS_S
    assert second.keep().why_not == ""
    with pytest.raises(LeaseLost, match="rlallocd on b has taken over"):
        first.renew()  # as before each batch
    clock.now_s += RENEW_AFTER_S + 1
    with pytest.raises(LeaseLost):
        first.confirm()
    site.slurm.down = set()
    assert first.keep().others_acted


def test_an_update_under_way_is_finished_while_the_store_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as nobody else can have taken over."""
    first, clock = site.rlallocd("a")
    assert first.keep() == MINE

    def fails(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(site.stores[0].lease, "renew", fails)
        clock.now_s += SLACK_S
        first.renew()
        clock.now_s += 0.1
        with pytest.raises(LeaseLost, match="could not be renewed for 10 s: the disk is full"):
            first.confirm()
    assert first.keep() == MINE


def test_a_file_of_one_machine_is_for_the_one_beside_the_primary(site: Site, tmp_path: Path) -> None:
    """As on a site that had one rlallocd before: it acts as it did."""
    url = f"sqlite:///{tmp_path}/local.sqlite"
    (first, _), (second, _) = site.rlallocd("a", url), site.rlallocd("b", url)
    assert first.keep() == MINE
    site.slurm.down = {"a"}
    assert "is a file of this machine alone, so only the rlallocd beside the primary" in second.keep().why_not


def test_beside_a_backup_a_store_without_common_locks_stays_closed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would roll back what the rlallocd beside the primary is writing, as it sees no lock of it."""
    monkeypatch.setattr(site_connection, "is_harmed_by_others", lambda _: True)
    monkeypatch.setattr(site_connection, "connect", lambda _: cast("Slurm", site.slurm))
    config = Config(
        store=StoreSection(url=f"sqlite:///{tmp_path}/unsafe.sqlite", key_file=tmp_path / "journal.key"),
        policy=PolicySection(directory=tmp_path),
    )
    monkeypatch.setattr(socket, "gethostname", lambda: "b")
    with pytest.raises(StoreError, match="only the one beside the primary slurmctld, a, acts"):
        SiteConnection(config, lambda: None)
    assert not (tmp_path / "unsafe.sqlite").exists()
    monkeypatch.setattr(socket, "gethostname", lambda: "a")
    SiteConnection(config, lambda: None).close()


def test_one_that_cannot_read_the_journal_does_not_act(site: Site) -> None:
    (first, _), (second, _) = site.rlallocd("a"), site.rlallocd("b", key=b"another")
    assert first.keep() == MINE
    site.slurm.down = {"a"}
    first.keep()
    assert second.keep().why_not.startswith("store.key_file is another one than that of rlallocd on a")


def test_on_a_machine_without_slurmctld_the_lease_alone_decides(site: Site) -> None:
    (first, _), (second, _) = site.rlallocd("x"), site.rlallocd("y")
    assert first.keep() == MINE
    assert "rlallocd on x.example.org has not given up" in second.keep().why_not


def fail_at(command: str, error: Exception) -> Callable[[str], None]:
    """What has a call of that name fail."""

    def called(name: str) -> None:
        if name == command:
            raise error

    return called
