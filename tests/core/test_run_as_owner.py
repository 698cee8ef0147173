"""What root starts by hand leaves nothing behind that the unit's user cannot change."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
_PROGRAM = """
import os, sys
from pathlib import Path
from rlalloc.system.run_as_owner import run_as_owner_of

run_as_owner_of(Path(sys.argv[1]))
Path(sys.argv[1], "made").write_text("x")
print(os.geteuid(), os.getegid(), os.getgroups(), os.environ["HOME"], os.getcwd())
"""


def _run(directory: Path, cwd: str = "/") -> str:
    argv = [sys.executable, "-c", _PROGRAM, str(directory)]
    done = subprocess.run(argv, cwd=cwd, umask=0o077, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_root_becomes_owner_and_group_of_the_directory() -> None:
    """With the units' umask; and in a working directory that this user may enter."""
    with tempfile.TemporaryDirectory() as outer, tempfile.TemporaryDirectory() as roots_own:
        Path(outer).chmod(0o755)
        directory = Path(outer) / "policies"
        directory.mkdir()
        os.chown(directory, 61_002, 61_003)
        assert _run(directory, roots_own) == f"61002 61003 [61003] {directory} /"
        made = (directory / "made").stat()
        assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (61_002, 61_003, 0o660)


def test_a_link_in_anothers_directory_does_not_make_root_write_as_root() -> None:
    """Whoever owns /var/lib/rlalloc can put a link, or a directory of root's, where the policies were."""
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        parent, roots = Path(outer) / "rlalloc", Path(outer) / "cron.d"
        parent.mkdir()
        roots.mkdir()
        (parent / "policies").symlink_to(roots)
        os.chown(parent, 61_002, 61_003)
        argv = [sys.executable, "-c", _PROGRAM, str(parent / "policies")]
        done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr
        assert not any(roots.iterdir())


def test_who_started_it_is_remembered_and_roots_cache_is_not(tmp_path: Path) -> None:
    program = _PROGRAM.replace("run_as_owner_of\n", "login_name, run_as_owner_of\n", 1).replace(
        "print(", 'print(login_name(), "XDG_CACHE_HOME" in os.environ) or print('
    )
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        os.chown(outer, 61_002, 61_003)
        environment = os.environ | {"SUDO_USER": "alice", "XDG_CACHE_HOME": str(tmp_path)}
        argv = [sys.executable, "-c", program, outer]
        done = subprocess.run(argv, cwd="/", env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[0] == "alice False"


def test_root_stays_root_where_the_directory_is_roots(tmp_path: Path) -> None:
    assert _run(tmp_path).startswith("0 0 ")
    assert (tmp_path / "made").stat().st_uid == 0
