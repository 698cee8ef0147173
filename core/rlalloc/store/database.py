"""Connections to the database behind the store: transactions, and errors that say what to do."""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from rlalloc.errors import StoreError, StoreMissing, StoreUnfit
from rlalloc.store.file_systems import file_system_of
from rlalloc.store.migrate import alone
from rlalloc.system.shared_files import make_shared, mend_shared

_SHARED: Final = "shared"
"""The word of store.url by which a site says that several machines write SQLite's file."""


class Database:
    """One connection pool to the database at ``url``. Raises StoreUnfit for a URL that cannot be used.

    With ``read_only`` SQLite refuses every write. Then, and without ``create``, no file is created; raises
    StoreMissing where there is none. SQLite's files are made so that the group of their directory may write them:
    daemon and trainer are different users. A file that several machines may write has a rollback journal instead of
    a WAL.
    """

    def __init__(self, url: str, *, read_only: bool, create: bool) -> None:
        with _unfit_urls():
            parsed, said_shared = _split_shared(sa.make_url(url))
            self.name = without_secrets(parsed.render_as_string())
            sqlite = parsed.get_backend_name() == "sqlite"
            self._file = _file_of(parsed)
            if sqlite:
                _refuse_pipes(parsed, self.name)
            if sqlite and (read_only or (not create and self._file is not None)):
                _require_file(parsed, self.name)
            if sqlite and read_only:
                parsed = _for_reading(parsed)
            elif sqlite and parsed.database:
                _share_files(parsed.database)
            self._engine = sa.create_engine(parsed, hide_parameters=True)  # no user's data in any traceback
        if sqlite:
            shared = said_shared or file_system_of(Path(parsed.database or "/")).is_network
            writing = _prepare_shared_writing if shared else _prepare_writing
            sa.event.listen(self._engine, "connect", _prepare_reading if read_only else writing)
            sa.event.listen(self._engine, "begin", _begin)
        self.fence: Callable[[sa.Connection], None] | None = None
        """Called at the begin of each transaction that writes; it raises where this program may no longer write."""
        self._writer = self._engine.execution_options(rlalloc_writes=True)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One transaction that reads. Raises StoreError if the database fails."""
        with self._named_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction that writes, all or nothing. Raises StoreError if the database fails."""
        with self._named_errors(), self._writer.begin() as connection:
            if self.fence is not None:
                self.fence(connection)
            yield connection

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other programs from migrating meanwhile. Raises StoreError."""
        with self._named_errors(), alone(self._engine):
            yield

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as err:
            raise StoreError(f"the store {self.name} failed: {_reason(err)}; {self._remedy()}") from err

    def _remedy(self) -> str:
        """What to look at after a failure."""
        if self._file is not None and _is_read_only(self._file.parent):
            return "its file system is read-only: make it writable, then restart rlallocd"
        return "check store.url, disk and rights"


def check_url(url: str) -> None:
    """Raise StoreUnfit for a URL that cannot be used, without opening what it names."""
    with _unfit_urls():
        parsed, _ = _split_shared(sa.make_url(url))
        sa.create_engine(parsed).dispose()


@contextmanager
def _unfit_urls() -> Iterator[None]:
    """Name what is wrong with a URL, or that its driver is not installed, as StoreUnfit."""
    try:
        yield
    except (SQLAlchemyError, ModuleNotFoundError) as err:
        raise StoreUnfit(
            f"store.url cannot be used: {err}; write it as in docs/reference/configuration.md, "
            "and install rlalloc[mysql] or rlalloc[postgresql] for MariaDB or PostgreSQL"
        ) from err


def without_secrets(url: str) -> str:
    """A store's URL with *** for its password, and for words of its query that name a secret."""
    hidden = re.sub(r"(//[^:/@\s]*):[^@\s]*@", r"\1:***@", url)
    return re.sub(r"([?&][^=&]*(?:pass|pwd|secret|token|key)[^=&]*=)[^&]*", r"\1***", hidden, flags=re.IGNORECASE)


def _reason(err: SQLAlchemyError) -> str:
    """What the driver says, in one line: without the statement, which contains users' data."""
    text = str(err.orig) if isinstance(err, DBAPIError) else str(err)
    return text.strip().partition("\n")[0] or type(err).__name__


def why_not_shared(url: str) -> str:
    """Why programs on several machines cannot use this store, or an empty string. Raises StoreUnfit."""
    try:
        parsed, said_shared = _split_shared(sa.make_url(url))
    except SQLAlchemyError as err:
        raise StoreUnfit(f"store.url cannot be used: {err}") from err
    if parsed.get_backend_name() != "sqlite":
        return ""
    what, found = f"the store {parsed.render_as_string()}", file_system_of(Path(parsed.database or "/"))
    if found.local_locks:
        return f"{what} lies on {found.kind}, mounted with {found.local_locks}"
    if said_shared:
        return ""
    if not found.is_network:
        return f"{what} is a file of this machine alone"
    if not found.has_known_locks:
        return f"{what} lies on {found.kind}, of which it is not known whether file locks hold on all machines"
    return ""


def is_harmed_by_others(url: str) -> bool:
    """Whether the store may break where programs on several machines open it, if only to read. Raises StoreUnfit.

    SQLite finds the journal of a transaction that another program writes and, where no lock tells it so, rolls the
    transaction back.
    """
    file = file_of(url)
    return file is not None and file_system_of(file).is_network and bool(why_not_shared(url))


def _split_shared(url: sa.URL) -> tuple[sa.URL, bool]:
    """The URL for SQLAlchemy, and whether it says that several machines use its file. Raises ArgumentError."""
    said = url.query.get(_SHARED)
    if said is None:
        return url, False
    if said != "yes" or url.get_backend_name() != "sqlite":
        raise sa.exc.ArgumentError(f"{_SHARED}={said}: only ?{_SHARED}=yes is known, for SQLite's files")
    return url.difference_update_query([_SHARED]), True


def file_of(url: str) -> Path | None:
    """The file of a store in SQLite; None for another one, and for one in memory."""
    try:
        return _file_of(sa.make_url(url))
    except SQLAlchemyError:
        return None


def _file_of(url: sa.URL) -> Path | None:
    named = url.database if url.get_backend_name() == "sqlite" else None
    return Path(named) if named and named != ":memory:" and not named.startswith("file:") else None


def _is_read_only(directory: Path) -> bool:
    """Whether this program cannot write there, whoever it is, as after an error of the disk."""
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _refuse_pipes(url: sa.URL, name: str) -> None:
    """Raise StoreError where SQLite would wait for somebody to write into a pipe."""
    file = _file_of(url)
    for ending in ("", "-journal", "-wal", "-shm") if file is not None else ():
        path = Path(f"{file}{ending}")
        with suppress(OSError):  # SQLite says what is wrong
            if path.exists() and not path.is_file():
                raise StoreError(f"the store {name} cannot be opened: {path} is not a file: remove it")


def _require_file(url: sa.URL, name: str) -> None:
    """Raise StoreMissing where SQLite would begin a new file."""
    try:
        there = url.database is not None and Path(url.database).exists()
    except PermissionError as err:
        raise StoreError(f"the store {name} is not yours to read: be root, or in the group rlalloc") from err
    if url.database is None or not there:
        raise StoreMissing(
            f"there is no store at {name} yet: rlallocd creates it when it first starts; "
            "if it lies on a shared file system, mount that"
        )


def _for_reading(url: sa.URL) -> sa.URL:
    """The URL that opens the same SQLite file for reading only."""
    return url.set(database=f"file:{quote(url.database or '')}").update_query_dict({"mode": "ro", "uri": "true"})


def _share_files(database: str) -> None:
    """Make the file here, since SQLite would leave its mode to the umask; -wal and -shm get the mode of the file."""
    if database == ":memory:" or database.startswith("file:"):
        return
    with suppress(OSError):  # SQLite says what is wrong when it opens the file
        make_shared(Path(database))
        for ending in ("-wal", "-shm"):
            mend_shared(Path(f"{database}{ending}"))


def _prepare_reading(connection: Any, _record: object) -> None:
    """Transactions begin where ``_begin`` says, not where Python's driver guesses."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=10000")
    cursor.close()


def _prepare_writing(connection: Any, record: object) -> None:
    """WAL lets reports read while the daemon writes; FULL survives a power cut."""
    _prepare_reading(connection, record)
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _prepare_shared_writing(connection: Any, record: object) -> None:
    """A rollback journal, since a WAL holds on one machine only; EXTRA makes it survive a power cut as FULL a WAL.

    A file that is in WAL mode is changed, unless another program has it open.
    """
    _prepare_reading(connection, record)
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError:
        cursor.close()
        connection.close()  # left open, it would be the other program for the next attempt
        raise
    cursor.execute("PRAGMA synchronous=EXTRA")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """A writer locks at once: one that reads first, and then finds another writer, would fail without waiting."""
    writes = connection.get_execution_options().get("rlalloc_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
