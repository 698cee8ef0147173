"""What a cycle reads of Slurm, and what it takes from the cycle before."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import Config, StoreSection
from rlalloc.store import Store
from rlallocd.agent_client import AgentClient
from rlallocd.controller import Controller
from rlallocd.slurm import ControllerConfig, JobRecord, NodeRecord, PartitionRecord, SiteLimits
from tests.core.test_store import APPLICATION, DECISION
from tests.core.test_store_migrations import run_sql

NODE = NodeRecord(
    name="n1",
    partitions=("gpu",),
    usable=True,
    cpus=64,
    cpus_used=0,
    mem_mib=1000,
    mem_mib_used=0,
    gpus=8,
    gpus_used=0,
)


class CountsReadings:
    """A Slurm without jobs that counts how often its nodes are read."""

    calls: dict[str, int]
    errors: dict[str, int]
    config = ControllerConfig(version="22.05.8", cluster="test", limits_enforced=False, gpus_accounted=True)

    def __init__(self, node: NodeRecord) -> None:
        self.calls, self.errors, self.node, self.nodes_read = {}, {}, node, 0

    def jobs(self) -> tuple[JobRecord, ...]:
        return ()

    def nodes(self) -> tuple[NodeRecord, ...]:
        self.nodes_read += 1
        return (self.node,)

    def partitions(self) -> dict[str, PartitionRecord]:
        return {}

    def limits(self, users: list[str]) -> SiteLimits:
        raise AssertionError(users)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(runtime_directory=tmp_path, store=StoreSection(url=f"sqlite:///{tmp_path}/store.sqlite"))


@pytest.fixture
def store(config: Config) -> Iterator[Store]:
    store = Store(config.store.url)
    yield store
    store.close()


@pytest.mark.parametrize(("usable", "readings"), [(True, 1), (False, 3)])
def test_nodes_are_read_again_while_one_is_down(config: Config, store: Store, *, usable: bool, readings: int) -> None:
    """One that has come up again must not be taken for down by the next job."""
    slurm = CountsReadings(msgspec.structs.replace(NODE, usable=usable))
    agent = AgentClient("ipc:///nowhere", 1.0)
    controller = Controller(config, slurm, store, agent)  # type: ignore[arg-type]
    for _ in range(3):
        assert not controller.cycle().failed
    assert slurm.nodes_read == readings
    agent.close()


def test_one_unreadable_row_does_not_stop_the_cycle(config: Config, store: Store) -> None:
    """Neither a decision whose outcome is awaited nor an open entry of the journal: both are skipped and counted."""
    store.add_decisions([DECISION])
    store.journal([APPLICATION])
    changes = ("UPDATE decisions SET decided_s = 2e9, request = '{}'", "UPDATE applications SET intended = '[]'")
    run_sql(config.store.url, *changes)
    patient = Store(config.store.url, skip_unreadable=True)
    agent = AgentClient("ipc:///nowhere", 1.0)
    controller = Controller(config, CountsReadings(NODE), patient, agent)  # type: ignore[arg-type]
    for _ in range(2):
        assert not controller.cycle().failed
    assert controller.counters["store_errors"] == 0
    assert controller.counters["unreadable_rows"] == 2
    agent.close()
    patient.close()
