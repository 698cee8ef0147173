"""Which revision a store is of, and bringing it to the one that this rlalloc knows."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import sqlalchemy as sa

from rlalloc import __version__
from rlalloc.errors import StoreError, StoreMissing, StoreUnfit

_log = logging.getLogger(__name__)

MIGRATIONS: Final = Path(__file__).parent / "migrations"
_WAIT_FOR_OTHERS_S: Final = 600


def known_revisions() -> tuple[str, ...]:
    """All revisions that this rlalloc knows, oldest first: the numbers in the names of the files in ``versions``."""
    return tuple(sorted(path.name[1:5] for path in (MIGRATIONS / "versions").glob("r[0-9][0-9][0-9][0-9]_*.py")))


def is_current(connection: sa.Connection, name: str) -> bool:
    """Whether the store is of the newest revision known here. Raises StoreUnfit for one that is not known."""
    revision = _revision_of(connection)
    known = known_revisions()
    if revision is not None and revision not in known:
        raise StoreUnfit(
            f"the store {name} is of revision {revision}, made by {_maker_of(connection, revision)}; this is rlalloc "
            f"{__version__}, which knows revisions up to {known[-1]}: install the rlalloc that made it, or a newer "
            "one, or set store.url to a store of this one"
        )
    return revision == known[-1]


def refuse_to_migrate(connection: sa.Connection, name: str) -> NoReturn:
    """Say what a program that only reads cannot do. Raises StoreMissing, or StoreError for an older store."""
    if not sa.inspect(connection).has_table("decisions"):
        raise StoreMissing(f"there is no store at {name} yet: rlallocd creates it when it first starts")
    raise StoreError(
        f"the store {name} was written by an earlier rlalloc, and commands that only read do not migrate it: restart "
        f"rlallocd, which migrates it to revision {known_revisions()[-1]}"
    )


def migrate(connection: sa.Connection, name: str) -> None:
    """Bring the store to the newest revision, inside the transaction of ``connection``; call it ``alone``.

    A store without a revision is empty, or of before there were revisions: the first revision adds what it lacks.
    Raises StoreError.
    """
    if is_current(connection, name):
        return
    _log.info("bringing the store %s to revision %s", name, known_revisions()[-1])
    from alembic import command, config  # takes a quarter of a second, and seldom is there something to do

    settings = config.Config()
    settings.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")


@contextmanager
def alone(engine: sa.Engine) -> Iterator[None]:
    """Keep other programs from migrating until the end of the block, in which the migration has to be committed.

    In SQLite the migration's own transaction keeps other writers out. Raises StoreError after ten minutes.
    """
    if engine.dialect.name not in {"mysql", "mariadb", "postgresql"}:
        yield
        return
    with engine.begin() as guard:  # a connection of its own: it must hold the lock until the other has committed
        if engine.dialect.name == "postgresql":
            guard.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('rlalloc'))"))
            yield
            return
        lock = "CONCAT(DATABASE(), '.rlalloc')"
        if guard.execute(sa.text(f"SELECT GET_LOCK({lock}, {_WAIT_FOR_OTHERS_S})")).scalar() != 1:
            raise StoreError("another program has been migrating the store for ten minutes; see its log, then retry")
        try:
            yield
        finally:
            guard.execute(sa.text(f"SELECT RELEASE_LOCK({lock})"))


def _revision_of(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _maker_of(connection: sa.Connection, revision: str) -> str:
    """The rlalloc that brought the store to ``revision``."""
    if not sa.inspect(connection).has_table("schema_history"):
        return "a newer rlalloc"
    maker = connection.execute(
        sa.text("SELECT rlalloc FROM schema_history WHERE revision = :revision"), {"revision": revision}
    ).scalar()
    return "a newer rlalloc" if maker is None else f"rlalloc {maker}"
