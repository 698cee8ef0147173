"""rlallocd and the trainer are two users of one group: whoever opens the store first, both write it."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from rlalloc.store.mend import mend_store_files

DAEMON: Final = 61_001
TRAINER: Final = 61_002
GROUP: Final = 61_003
_WRITER: Final = """
import sys
from rlalloc.store import PolicyRow, Store

url, *versions = sys.argv[1:]
store = Store(url)
for version in versions:
    store.add_policy(PolicyRow(version=version, parent=None, created_s=1.0, promoted=False, verdict={}))
print("written", flush=True)
sys.stdin.read()
store.close()
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users in turn")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory as systemd/rlalloc.tmpfiles.conf makes it: the daemon's, open to the group, which is inherited."""
    with tempfile.TemporaryDirectory() as outer:  # not tmp_path, which only root may enter
        Path(outer).chmod(0o755)
        made = Path(outer) / "rlalloc"
        made.mkdir()
        os.chown(made, DAEMON, GROUP)
        made.chmod(0o2770)
        yield made


@contextmanager
def writer(user: int, folder: Path, version: str, umask: int = 0o007) -> Iterator[None]:
    """A process of that user that has written a row, and keeps the store open."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, f"sqlite:///{folder}/store.sqlite", version],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=user,
        group=0 if user == 0 else GROUP,
        extra_groups=[],
        umask=umask,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "written\n":
            pytest.fail(f"user {user} cannot write: {process.stderr.read()}")
        yield
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize(("first", "umask"), [(DAEMON, 0o007), (TRAINER, 0o022), (0, 0o077)])
def test_whoever_comes_first_both_write(folder: Path, first: int, umask: int) -> None:
    """Before, at and after a restart of either, whatever their umask; -wal and -shm belong to one or the other."""
    with writer(first, folder, "v1", umask):
        with writer(TRAINER, folder, "v2", umask), writer(DAEMON, folder, "v3", umask):
            for path in folder.iterdir():
                assert (path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (GROUP, 0o660), path
        with writer(DAEMON, folder, "v4", umask):
            pass
    assert {path.name for path in folder.iterdir()} == {"store.sqlite"}


def test_a_store_of_before_is_mended_by_its_owner(folder: Path) -> None:
    """0640, as SQLite made it under UMask 0007."""
    with writer(DAEMON, folder, "v1"):
        for path in folder.iterdir():
            path.chmod(0o640)
        with writer(DAEMON, folder, "v2"), writer(TRAINER, folder, "v3"):
            pass


def test_a_store_that_root_restored_is_given_back(folder: Path) -> None:
    """`cp backup store.sqlite` as root, then the unit's ExecStartPre; what is no file of its own is left alone."""
    with writer(DAEMON, folder, "v1"):
        pass
    path = folder / "store.sqlite"
    os.chown(path, 0, 0)
    path.chmod(0o644)
    mend_store_files(f"sqlite:///{path}")
    assert (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (DAEMON, GROUP, 0o660)
    with writer(TRAINER, folder, "v2"), writer(DAEMON, folder, "v3"):
        pass
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_text("x")
    path.unlink()
    path.symlink_to(elsewhere)
    mend_store_files(f"sqlite:///{path}")
    assert elsewhere.stat().st_uid == 0


def test_a_directory_that_is_not_shared_shares_nothing(folder: Path) -> None:
    """A store in somebody's own directory has the mode that their umask gives it."""
    folder.chmod(0o755)
    with writer(DAEMON, folder, "v1", 0o022):
        assert stat.S_IMODE((folder / "store.sqlite").stat().st_mode) == 0o644
