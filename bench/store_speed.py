"""How long the store takes for what runs again and again, when it is small and when it is large.

    python bench/store_speed.py [--decisions 1000000] [--times 30]

Makes two SQLite stores in a temporary folder, of a thousand decisions and of as many as asked for, each with an entry
in the journal and an outcome, and prints the median of each question in both, and their ratio.
"""

import argparse
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from rlalloc.job import Allocation
from rlalloc.store import Application, Decision, Outcome, Store

NOW_S: Final = 1_800_000_000.0
APART_S: Final = 60.0
FEW: Final = 1_000
SIZE: Final = Allocation(
    nodes=1, gpus_per_node=4, tasks_per_node=1, cpus_per_task=32, mem_mib_per_node=1024, time_limit_s=600
)
DECISION: Final = Decision(
    id="d1",
    job_id=7,
    submitted_s=1000,
    decided_s=NOW_S,
    user="alice",
    account="llm",
    partition="gpu",
    job_name="pretrain",
    job_class="train",
    rule="llm",
    mode="enforce",
    reason="",
    request=SIZE,
    observation=bytes(200),
    observation_schema=1,
)
APPLICATION: Final = Application(
    id=0,
    decision_id="d1",
    job_id=7,
    state="begun",
    original=SIZE,
    intended=SIZE,
    begin_s=0,
    detail="let go",
    changed_s=NOW_S,
)
OUTCOME: Final = Outcome(
    decision_id="d1",
    state="COMPLETED",
    exit_code="0:0",
    eligible_s=1001,
    started_s=1002,
    ended_s=1100,
    nodes=1,
    gpus=4,
    cpus=32,
    mem_mib=1024,
    max_rss_mib=None,
    consumed_energy_j=None,
    executed_shares=None,
    reward=-0.5,
)
QUEUED: Final = [(job_id, 1000) for job_id in range(7, 10)]


def decide_and_end(store: Store) -> None:
    """Write a decision for a job, and its outcome."""
    name = str(uuid.uuid4())
    store.add_decisions([msgspec.structs.replace(DECISION, id=name, job_id=-1)])
    store.add_outcomes([msgspec.structs.replace(OUTCOME, decision_id=name)])


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
    "old decisions": lambda store: store.old_decisions(NOW_S - 3600, after=(0, "d"), limit=50),
    "old decisions that go": lambda store: store.delete_decisions(["d900", "d901"]),
    "a decision and its outcome": decide_and_end,
}
"""What the daemon's cycle, ``rlalloc status`` and ``rlalloc explain`` ask."""


def main() -> None:
    """Print a line for each question."""
    parser = argparse.ArgumentParser(description="What the store takes when it is small and when it is large.")
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=30, help="how often each question is asked")
    arguments = parser.parse_args()
    table = Table("question", f"{FEW} decisions, ms", f"{arguments.decisions} decisions, ms", "ratio")
    with tempfile.TemporaryDirectory() as folder:
        stores = [open_store(Path(folder) / f"{rows}.sqlite", rows) for rows in (FEW, arguments.decisions)]
        for question, ask in PERIODIC.items():
            small, large = (milliseconds(store, ask, arguments.times) for store in stores)
            table.add_row(question, f"{small:.2f}", f"{large:.2f}", f"{large / small:.2f}")
        for store in stores:
            store.close()
    Console().print(table)


def milliseconds(store: Store, ask: Callable[[Store], object], times: int) -> float:
    """Return the median of how long an answer takes."""
    taken = []
    for _ in range(times):
        asked_s = time.perf_counter()
        ask(store)
        taken.append(1000 * (time.perf_counter() - asked_s))
    return statistics.median(taken)


def open_store(path: Path, rows: int) -> Store:
    """Make a store of ``rows`` decisions, APART_S apart, each but the latest five with an outcome."""
    url = f"sqlite:///{path}"
    store = Store(url)
    store.add_decisions([DECISION])
    store.journal([APPLICATION])
    store.add_outcomes([OUTCOME])
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    decision_id, time_s = "'d' || (1 + n)", f"{NOW_S} - {APART_S} * n"
    copy(connection, "decisions", rows, {"id": decision_id, "job_id": "7 + n", "decided_s": time_s})
    journal = {"id": "10 + n", "decision_id": decision_id, "job_id": "7 + n", "changed_s": time_s}
    copy(connection, "applications", rows, journal)
    copy(connection, "outcomes", rows, {"decision_id": decision_id})
    open_since_s = NOW_S - 5 * APART_S
    connection.execute("UPDATE decisions SET awaits_outcome = 1 WHERE decided_s > ?", [open_since_s])
    connection.commit()
    connection.close()
    return Store(url)


def copy(connection: sqlite3.Connection, table: str, rows: int, different: dict[str, str]) -> None:
    """Copy a table's only row ``rows`` - 1 times, with expressions of the number ``n`` for what is different."""
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(different.get(name, f'only."{name}"') for name in names)
    connection.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows} - 1) "
        f"INSERT INTO {table} SELECT {values} FROM numbers, (SELECT * FROM {table} LIMIT 1) AS only"
    )


if __name__ == "__main__":
    main()
