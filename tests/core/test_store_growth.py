"""What runs again and again costs the same however large the store is."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import sqlalchemy as sa

from rlalloc.store import Store
from tests.core.test_store import APPLICATION, DECISION, OUTCOME

NOW_S: Final = DECISION.decided_s
QUEUED: Final = [(job_id, 1000) for job_id in range(3)]


def decide_and_end(store: Store) -> None:
    """Write a decision for a job, and its outcome."""
    store.add_decisions([msgspec.structs.replace(DECISION, id="new", job_id=-1)])
    store.add_outcomes([msgspec.structs.replace(OUTCOME, decision_id="new")])


PERIODIC: Final[dict[str, Callable[[Store], object]]] = {
    "the journal's open entries": lambda store: store.open_applications(),
    "what was begun lately": lambda store: store.begun_since(NOW_S - 3600),
    "histories of waiting jobs": lambda store: store.histories(QUEUED),
    "jobs without an outcome": lambda store: store.jobs_without_outcome(NOW_S - 90 * 86400, besides=QUEUED),
    "a further page of them": lambda store: store.jobs_without_outcome(0, after=(NOW_S - 60, "d")),
    "an outcome": lambda store: store.outcomes(["d1"]),
    "a job's decisions": lambda store: store.decisions_of(7),
    "a decision's applications": lambda store: store.applications("d1"),
    "the latest decisions": lambda store: store.recent_decisions(10),
    "rows by table": lambda store: store.counts(100),
    "a decision and its outcome": decide_and_end,
}
"""What the daemon's cycle, ``rlalloc status`` and ``rlalloc explain`` ask."""


def fill(path: Path, rows: int) -> None:
    """Make a store of ``rows`` decisions a minute apart, each with a journal entry and an outcome."""
    store = Store(f"sqlite:///{path}")
    store.add_decisions([msgspec.structs.replace(DECISION, bounds=None, circumstances=None)])
    store.journal([msgspec.structs.replace(APPLICATION, record=None)])
    store.add_outcomes([OUTCOME])
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    for table, own in (
        ("decisions", {"id": "'d' || (1 + n)", "job_id": "7 + n", "decided_s": f"{NOW_S} - 60.0 * n"}),
        (
            "applications",
            {"id": "10 + n", "decision_id": "'d' || (1 + n)", "job_id": "7 + n", "state": "'begun'"}
            | {"changed_s": f"{NOW_S} - 60.0 * n"},
        ),
        ("outcomes", {"decision_id": "'d' || (1 + n)"}),
    ):
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(own.get(name, f't."{name}"') for name in names)
        connection.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) "
            f"INSERT INTO {table} SELECT {values} FROM numbers, (SELECT * FROM {table} LIMIT 1) AS t"
        )
    connection.execute(f"UPDATE decisions SET awaits_outcome = 1 WHERE decided_s > {NOW_S} - 300")
    connection.commit()
    connection.close()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """A store of a thousand decisions, and one of a million."""
    folder = tmp_path_factory.mktemp("stores")
    opened = []
    for rows in (1_000, 1_000_000):
        fill(folder / f"{rows}.sqlite", rows)
        opened.append(Store(f"sqlite:///{folder}/{rows}.sqlite"))
    yield opened[0], opened[1]
    for store in opened:
        store.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("asked", PERIODIC)
def test_what_runs_periodically_takes_as_many_steps_in_a_large_store(stores: tuple[Store, Store], asked: str) -> None:
    small, large = (steps_of(store, PERIODIC[asked]) for store in stores)
    assert large < 2 * small + 500


@pytest.mark.parametrize("asked", PERIODIC)
def test_what_runs_periodically_finds_its_rows_by_an_index(tmp_path: Path, asked: str) -> None:
    """What goes through a table in its order, or in that of an index, stops at a limit and sorts nothing."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    for statement, plan in plans_of(store, PERIODIC[asked]):
        if any(step.startswith("SCAN") for step in plan):
            assert "LIMIT" in statement
            assert not any("TEMP B-TREE" in step for step in plan), statement
    store.close()


def steps_of(store: Store, ask: Callable[[Store], object]) -> int:
    """How many hundreds of instructions SQLite runs to answer."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    with store._database._engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(step, 100)
    ask(store)
    driver.set_progress_handler(None, 0)
    return steps


def plans_of(store: Store, ask: Callable[[Store], object]) -> list[tuple[str, list[str]]]:
    """Each statement that is run to answer, with the steps of its plan."""
    engine = store._database._engine
    asked: list[tuple[str, Any]] = []

    def note(*event: Any) -> None:
        statement, parameters, many = event[2], event[3], event[5]
        asked.append((statement, parameters[0] if many else parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    ask(store)
    sa.event.remove(engine, "before_cursor_execute", note)
    with engine.connect() as connection:
        return [
            (statement, [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)])
            for statement, parameters in asked
            if statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))
        ]


def test_as_many_queries_however_many_jobs(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    for jobs in (2, 200):
        store.add_decisions([msgspec.structs.replace(DECISION, id=f"{jobs}-{n}", job_id=n) for n in range(jobs)])

    def collect(store: Store) -> object:
        return store.histories(store.jobs_without_outcome(0).jobs)

    assert len(plans_of(store, collect)) == 3
    store.close()
