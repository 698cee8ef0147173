"""A small PostgreSQL server of the tests' own, from Debian's package; nothing of it outlives the tests."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_PROGRAMS: Final = Path("/usr/lib/postgresql")
_USER: Final = "postgres"
_SETTINGS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "40",
    "shared_buffers": "16MB",
    "synchronous_commit": "off",
}
"""Little memory, no port, and no waiting for the disk."""


class PostgresqlServer:
    """A running server, reached through a socket in ``directory``."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self._directory = directory
        self._programs = programs

    def database_url(self) -> str:
        """SQLAlchemy URL of a new, empty database."""
        name = f"store_{uuid.uuid4().hex[:12]}"
        self.run("createdb", f"--host={self._directory}", name)
        return f"postgresql+psycopg://{_USER}@/{name}?host={self._directory}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as its user, which may not be root."""
        done = subprocess.run(
            [self._programs / program, *arguments],
            user=_USER if os.geteuid() == 0 else None,
            group=_USER if os.geteuid() == 0 else None,
            extra_groups=() if os.geteuid() == 0 else None,
            cwd=self._directory,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


@contextmanager
def postgresql_server() -> Iterator[PostgresqlServer]:
    """Start one; the calling test is skipped where PostgreSQL is not installed."""
    pytest.importorskip("psycopg")
    programs = sorted(_PROGRAMS.glob("*/bin"), key=lambda path: int(path.parent.name))
    if not programs or shutil.which("postgres", path=str(programs[-1])) is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="rlalloc-pg-") as made:  # a socket's path has to be short
        directory = Path(made)
        if os.geteuid() == 0:
            entry = pwd.getpwnam(_USER)
            os.chown(directory, entry.pw_uid, entry.pw_gid)
        directory.chmod(0o711)
        server = PostgresqlServer(directory, programs[-1])
        data = directory / "data"
        server.run(
            *("initdb", f"--pgdata={data}", "--auth=trust", f"--username={_USER}", "--encoding=UTF8", "--no-sync")
        )
        settings = " ".join(f"-c {key}={value or chr(39) * 2}" for key, value in _SETTINGS.items())
        log = directory / "log"
        server.run(
            *("pg_ctl", f"--pgdata={data}", f"--log={log}", "--wait", "--timeout=120"),
            *(f"--options={settings} -c unix_socket_directories={directory}", "start"),
        )
        try:
            yield server
        finally:
            server.run("pg_ctl", f"--pgdata={data}", "--mode=immediate", "--wait", "stop")
