"""A store that programs on several machines use: which of them acts, and how SQLite keeps such a file."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import LeaseLost, StoreError, StoreUnfit
from rlalloc.store import Lease, PolicyRow, Store, file_systems
from rlalloc.store.database import is_harmed_by_others, why_not_shared
from rlalloc.store.file_systems import file_system_in, file_system_of

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:45 / /var/lib/rlalloc rw,relatime shared:9 - nfs4 filer:/rlalloc rw,vers=4.2,hard,local_lock=none
41 22 0:46 / /old rw,relatime - nfs filer:/old rw,vers=3,nolock,local_lock=all
42 22 0:47 / /scratch rw - lustre mds@tcp:/scratch rw,flock,lazystatfs
43 22 0:48 / /mnt rw - fuse.ceph-fuse ceph-fuse rw
"""


def test_only_one_of_two_takes_a_lease(url: str) -> None:
    """Each change is a compare-and-swap, seen by the other program at once."""
    first, second = Store(url), Store(url)
    free = second.lease.read()
    assert free == Lease() == first.lease.read()
    held = first.lease.take(free, "a", 20.0, 100.0)
    assert held == Lease(holder="a", epoch=1, lasts_s=20.0, renewed_s=100.0)
    assert second.lease.take(free, "b", 20.0, 100.0) is None
    assert second.lease.read() == held
    renewed = first.lease.renew(held, 105.0)
    assert renewed is not None
    assert second.lease.take(held, "b", 20.0, 101.0) is None, "it was renewed since"
    taken = second.lease.take(renewed, "b", 20.0, 130.0)
    assert taken is not None
    assert taken.epoch == 2
    assert first.lease.renew(renewed, 131.0) is None, "it is another's now"
    first.lease.give_up(renewed, 131.0)
    assert first.lease.read() == taken
    second.lease.give_up(taken, 132.0)
    assert first.lease.read() == msgspec.structs.replace(taken, lasts_s=0.0, renewed_s=132.0)
    assert first.lease.take(first.lease.read(), "a", 20.0, 133.0) is not None
    first.close()
    second.close()


def test_who_has_lost_the_lease_writes_nothing_any_more(url: str) -> None:
    """A daemon that slept over its lease must not journal what the other one has begun. One without a lease may."""
    first, second, trainer = Store(url), Store(url), Store(url)
    held = first.lease.take(first.lease.read(), "a", 20.0, 100.0)
    assert held is not None
    first.add_policy(row("v1"))
    assert second.lease.take(held, "b", 20.0, 130.0) is not None
    with pytest.raises(LeaseLost, match="rlallocd on b has taken over"):
        first.add_policy(row("v2"))
    second.add_policy(row("v3"))
    trainer.add_policy(row("v4"))
    assert {policy.version for policy in first.policies()} == {"v1", "v3", "v4"}
    for store in (first, second, trainer):
        store.close()


def test_the_file_system_says_whether_machines_share_a_file() -> None:
    assert [file_system_in(MOUNTS, device).is_network for device in ("254:0", "0:45", "0:47", "0:48", "9:9")] == [
        *(False, True, True, True, False)
    ]
    assert file_system_in(MOUNTS, "0:46").local_locks == "local_lock=all"
    assert file_system_in(MOUNTS, "0:45").local_locks == ""
    assert file_system_of(Path("/proc/self/status")).kind == "proc"
    assert file_system_of(Path("/sys/nowhere/deep")).kind == "sysfs"


def test_a_file_of_one_machine_is_told_from_a_shared_store(tmp_path: Path) -> None:
    assert "is a file of this machine alone" in why_not_shared(f"sqlite:///{tmp_path}/store.sqlite")
    assert why_not_shared(f"sqlite:///{tmp_path}/store.sqlite?shared=yes") == ""
    assert why_not_shared("postgresql+psycopg://rlalloc@db/rlalloc") == ""
    for url in (f"sqlite:///{tmp_path}/store.sqlite?shared=maybe", "postgresql+psycopg://db/rlalloc?shared=yes"):
        with pytest.raises(StoreUnfit, match="only \\?shared=yes is known, for SQLite"):
            Store(url)


@pytest.mark.parametrize(
    ("mounted", "word", "obstacle"),
    [
        ("nfs4 filer:/x rw,vers=4.2,hard,local_lock=none", "", ""),
        ("fuse.ceph-fuse ceph-fuse rw", "", ""),
        ("nfs filer:/x rw,vers=3,nolock,local_lock=all", "", "lies on nfs, mounted with local_lock=all"),
        ("nfs filer:/x rw,vers=3,nolock,local_lock=all", "?shared=yes", "lies on nfs, mounted with local_lock=all"),
        ("cifs //filer/x rw,nobrl", "", "lies on cifs, mounted with nobrl"),
        ("fuse.sshfs filer:/x rw", "", "lies on fuse.sshfs, of which it is not known whether file locks hold"),
        ("virtiofs x rw", "", "lies on virtiofs, of which it is not known whether file locks hold"),
        ("virtiofs x rw", "?shared=yes", ""),
        ("ext4 /dev/sda1 rw", "", "is a file of this machine alone"),
    ],
)
def test_a_file_is_shared_only_where_its_locks_hold_on_all_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, word: str, obstacle: str
) -> None:
    """The site's word counts where nothing is known, and not where a mount option says otherwise."""
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"40 22 {os.major(device)}:{os.minor(device)} / {tmp_path} rw - {mounted}\n")
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    url = f"sqlite:///{tmp_path}/store.sqlite{word}"
    said = why_not_shared(url)
    assert obstacle in said
    assert bool(said) == bool(obstacle)
    assert is_harmed_by_others(url) == (bool(obstacle) and "ext4" not in mounted)


def test_a_shared_file_has_a_rollback_journal_and_loses_nothing(tmp_path: Path) -> None:
    """Also one that was in WAL mode before; two programs write and read it at once, once it is changed.

    Of two that change its mode at the same moment, one may find it locked, and has to try again.
    """
    path = tmp_path / "store.sqlite"
    Store(f"sqlite:///{path}").close()
    assert journal_mode(path) == "wal"
    url = f"sqlite:///{path}?shared=yes"
    Store(url).close()
    program = (
        "import sys\nfrom rlalloc.store import PolicyRow, Store\nstore = Store(sys.argv[1])\n"
        "for n in range(50):\n"
        "    row = PolicyRow(version=f'{sys.argv[2]}{n}', parent=None, created_s=n, promoted=False, verdict={})\n"
        "    store.add_policy(row)\n    store.policies()\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, url, name], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    assert [process.communicate()[1] for process in started] == ["", ""]
    assert journal_mode(path) == "delete"
    reader = Store(url, read_only=True)
    assert len(reader.policies()) == 100
    reader.close()
    assert {each.name for each in tmp_path.iterdir()} == {"store.sqlite"}


def test_a_file_that_others_keep_in_wal_mode_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    here = Store(f"sqlite:///{path}")
    here.add_policy(row("v1"))
    with pytest.raises(StoreError, match="locked"):
        Store(f"sqlite:///{path}?shared=yes")
    here.close()
    Store(f"sqlite:///{path}?shared=yes").close()


def row(version: str) -> PolicyRow:
    """Something to write."""
    return PolicyRow(version=version, parent=None, created_s=1.0, promoted=False, verdict={})


def journal_mode(path: Path) -> str:
    """As the file itself says."""
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    finally:
        connection.close()
