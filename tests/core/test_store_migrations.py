"""Stores of earlier and later versions, and programs that open one at once."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from rlalloc import __version__
from rlalloc.errors import StoreError, StoreMissing
from rlalloc.store import Store
from rlalloc.store.migrate import MIGRATIONS, known_revisions
from rlalloc.store.tables import METADATA
from tests.core.test_store import APPLICATION, DECISION, OUTCOME


def run_sql(url: str, *statements: str) -> None:
    """Change a store behind rlalloc's back."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def make_unversioned(url: str, *lacking: str) -> None:
    """Make a store as it was before there were revisions, without some columns (``table.column``)."""
    Store(url).close()
    drops = (column.split(".") for column in lacking)
    run_sql(
        url,
        *(f"ALTER TABLE {table} DROP COLUMN {column}" for table, column in drops),
        "DROP TABLE alembic_version",
        "DROP TABLE schema_history",
    )


def make_newer(url: str) -> None:
    """Make a store as a later rlalloc leaves it."""
    Store(url).close()
    run_sql(
        url,
        "UPDATE alembic_version SET version_num = '9000'",
        "INSERT INTO schema_history (revision, rlalloc, applied_s) VALUES ('9000', '7.5.0', 1)",
    )


def test_migrations_lead_to_the_tables_in_use(url: str) -> None:
    """Who changes a table without a migration finds out here."""
    Store(url).close()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_revisions_are_numbered_in_their_order() -> None:
    revisions = ScriptDirectory(str(MIGRATIONS)).walk_revisions()
    assert tuple(each.revision for each in revisions)[::-1] == known_revisions()


def test_a_store_without_a_revision_gets_what_it_lacks(url: str) -> None:
    lacking = ("decisions.circumstances", "applications.begins", "applications.record", "outcomes.costs")
    store = Store(url)
    store.add_decisions([DECISION])
    store.journal([APPLICATION])
    store.add_outcomes([OUTCOME])
    store.close()
    make_unversioned(url, *lacking)
    again = Store(url)
    (old,) = again.open_applications()
    assert old == msgspec.structs.replace(APPLICATION, id=old.id, begins=True, record=None)
    (new,) = again.journal([APPLICATION])
    assert again.open_applications() == (old, new)
    (experience,) = again.experience()
    assert experience.decision == msgspec.structs.replace(DECISION, circumstances=None)
    assert experience.outcome == msgspec.structs.replace(OUTCOME, costs=None)
    again.close()


def test_whose_outcome_is_awaited_is_known_of_old_decisions(url: str) -> None:
    """Decisions of one job share its outcome; the migration is a file that was run before there was such a column."""
    again = msgspec.structs.replace(DECISION, id="d2")
    waiting = msgspec.structs.replace(DECISION, id="d3", job_id=8)
    store = Store(url)
    store.add_decisions([DECISION, again, waiting])
    store.add_outcomes([OUTCOME])
    store.close()
    run_sql(url, "UPDATE decisions SET awaits_outcome = 1", "UPDATE alembic_version SET version_num = '0001'")
    again_opened = Store(url)
    assert again_opened.jobs_without_outcome(0).jobs == ((8, 1000),)
    again_opened.close()


def test_an_outcome_that_an_older_rlalloc_wrote_does_no_harm(url: str) -> None:
    """It had no word for whether an outcome is awaited, so a newer one looks for it again."""
    store = Store(url)
    store.add_decisions([DECISION])
    store.add_outcomes([OUTCOME])
    run_sql(url, "UPDATE decisions SET awaits_outcome = 1")
    store.add_outcomes([msgspec.structs.replace(OUTCOME, reward=None)])
    assert store.outcome("d1") == OUTCOME
    assert store.jobs_without_outcome(0).jobs == ()
    store.close()


def test_the_store_remembers_who_migrated_it(url: str) -> None:
    Store(url).close()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT revision, rlalloc FROM schema_history ORDER BY revision")).all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [(revision, __version__) for revision in known_revisions()]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_a_later_rlalloc_is_refused(url: str, *, read_only: bool) -> None:
    make_newer(url)
    with pytest.raises(StoreError, match=r"revision 9000, made by rlalloc 7\.5\.0; .* install the rlalloc"):
        Store(url, read_only=read_only)


def test_programs_may_open_a_new_store_at_once(url: str) -> None:
    program = "import sys; from rlalloc.store import Store; store = Store(sys.argv[1]); store.counts(9)"
    started = [
        subprocess.Popen([sys.executable, "-c", program, url], stderr=subprocess.PIPE, text=True) for _ in range(6)
    ]
    assert [process.communicate()[1] for process in started] == [""] * 6
    Store(url).close()


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match=r"no store at .* yet: rlallocd creates it"):
        Store(f"sqlite:///{tmp_path}/store.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_but_a_plain_path_can_be_missed(tmp_path: Path) -> None:
    """Whether the file of a URI is there is SQLite's to say."""
    url = f"sqlite:///file:{tmp_path}/store.sqlite?uri=true"
    Store(url).close()
    Store(url, create=False).close()


def test_reading_migrates_nothing(url: str) -> None:
    make_unversioned(url, "outcomes.costs")
    with pytest.raises(StoreError, match=r"earlier rlalloc.*restart rlallocd"):
        Store(url, read_only=True)
    assert "alembic_version" not in tables_of(url)


def test_an_empty_database_is_no_store_yet(url: str) -> None:
    run_sql(url)
    with pytest.raises(StoreMissing, match=r"no store at .* yet"):
        Store(url, read_only=True)
    assert tables_of(url) == []


def tables_of(url: str) -> list[str]:
    """The tables that a database has."""
    engine = sa.create_engine(url)
    found = sa.inspect(engine).get_table_names()
    engine.dispose()
    return found


def test_what_was_written_can_be_read_only(url: str) -> None:
    writer = Store(url)
    writer.add_decisions([DECISION])
    reader = Store(url, read_only=True)
    assert reader.decisions_of(7) == (DECISION,)
    reader.close()
    writer.close()


def test_sqlite_refuses_to_write_for_a_reader(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    Store(url).close()
    reader = Store(url, read_only=True)
    with pytest.raises(StoreError, match="readonly"):
        reader.add_decisions([DECISION])
    reader.close()
