"""What runs again and again costs the same however large the store is."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from rlalloc.config import Config
from rlalloc.store import Store
from rlalloc.store.job_story import story_of
from rlalloc_cli.status import store_lines
from rlallocd.controller import Controller
from rlallocd.decisions.agent_client import AgentClient
from store_speed import PERIODIC, open_store
from tests.core.test_store import DECISION
from tests.daemon.slurm_in_memory import SlurmInMemory


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """A store of a thousand decisions, and one of 200 000; ``bench/store_speed.py`` measures a million."""
    folder = tmp_path_factory.mktemp("stores")
    small, large = (open_store(folder / f"{rows}.sqlite", rows) for rows in (1_000, 200_000))
    yield small, large
    small.close()
    large.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("asked", PERIODIC)
def test_what_runs_periodically_takes_as_many_steps_in_a_large_store(stores: tuple[Store, Store], asked: str) -> None:
    small, large = (steps_of(store, PERIODIC[asked]) for store in stores)
    assert large <= 1.5 * small + 5


def test_status_takes_as_many_steps_in_a_large_store(stores: tuple[Store, Store]) -> None:
    """It counts ten thousand rows of a table, where there are as many."""
    small, large = (steps_of(store, lambda of: store_lines(of, Config())) for store in stores)
    assert large < small + 10_000


def test_a_cycle_takes_as_many_steps_in_a_large_store(stores: tuple[Store, Store], tmp_path: Path) -> None:
    steps = []
    for store in stores:
        agent = AgentClient("ipc:///nowhere", 1.0)
        slurm: Any = SlurmInMemory()
        controller = Controller(Config(runtime_directory=tmp_path), slurm, store, agent)
        steps.append(steps_of(store, cycle_of(controller)))
        assert not sum(controller.counters[f"{what}_errors"] for what in ("store", "slurm", "runtime_directory"))
        agent.close()
    small, large = steps
    assert large < small + 1_000


@pytest.mark.parametrize("asked", PERIODIC)
def test_what_runs_periodically_finds_its_rows_by_an_index(tmp_path: Path, asked: str) -> None:
    """What goes through a table in its order, or in that of an index, stops at a limit and sorts nothing."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    for statement, plan in plans_of(store, PERIODIC[asked]):
        if any(step.startswith("SCAN") for step in plan):
            assert "LIMIT" in statement
            assert not any("TEMP B-TREE" in step for step in plan), statement
    store.close()


def cycle_of(controller: Controller) -> Callable[[Store], object]:
    return lambda _store: controller.cycle()


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


def test_a_jobs_story_takes_as_many_queries_however_often_it_was_decided(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.add_decisions([DECISION])
    once = len(plans_of(store, lambda store: story_of(store, 7)))
    store.add_decisions([msgspec.structs.replace(DECISION, id=f"again{number}") for number in range(50)])
    assert len(plans_of(store, lambda store: story_of(store, 7))) == once
    assert len(story_of(store, 7)) == 51
    store.close()
