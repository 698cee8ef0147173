"""A small MariaDB server for one site."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from .external_commands import run_command
from .requirements import search_path

if TYPE_CHECKING:
    from .layout import Layout, Ports

DATABASE_USER = "slurm"


def initialise(layout: Layout) -> None:
    """Create the data directory, the user's password and the start-up statements.

    Raises CommandFailedError.
    """
    password = secrets.token_hex(16)
    layout.database_password.write_text(password, encoding="ascii")
    layout.database_password.chmod(0o600)
    # For each address that a client on this machine can seem to come from; rights on everything,
    # so that a test can have databases of its own.
    statements = "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n" + "".join(
        f"CREATE USER IF NOT EXISTS '{DATABASE_USER}'@'{host}' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{DATABASE_USER}'@'{host}';\n"
        for host in ("127.0.0.1", "localhost")
    )
    start_up = layout.secrets / "mariadb-start-up.sql"
    start_up.write_text(statements, encoding="ascii")
    start_up.chmod(0o600)
    run_command(
        [
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={layout.database}",
            "--force",  # else it insists on looking the machine's name up, which may not resolve
            "--skip-test-db",
            "--skip-name-resolve",
            "--auth-root-authentication-method=normal",
            "--innodb-log-file-size=8M",
        ],
        timeout_s=120,
        environment={"PATH": search_path(), "LANG": "C.UTF-8", "TMPDIR": str(layout.database_temporary)},
    )


def server_arguments(layout: Layout, ports: Ports) -> list[str]:
    """Return the command line of mariadbd: little memory, and no waiting for the disk.

    A crash of the machine may cost the data, which nobody misses in a testbed; a crash of the
    server alone does not.
    """
    return [
        "mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={layout.database}",
        f"--tmpdir={layout.database_temporary}",
        f"--socket={layout.database_socket}",
        f"--port={ports.mariadbd}",
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",
        f"--pid-file={layout.run / 'mariadbd.pid'}",
        f"--log-error={layout.log / 'mariadbd.log'}",
        f"--init-file={layout.secrets / 'mariadb-start-up.sql'}",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=8M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--innodb-lock-wait-timeout=900",
        "--innodb-use-native-aio=0",  # aio slots are a limit of the whole machine; several sites share them
        "--skip-log-bin",
        "--performance-schema=OFF",
        "--max-connections=50",
    ]
