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
from rlalloc.run_as_owner import run_as_owner_of

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


def test_root_stays_root_where_the_directory_is_roots(tmp_path: Path) -> None:
    assert _run(tmp_path).startswith("0 0 ")
    assert (tmp_path / "made").stat().st_uid == 0
