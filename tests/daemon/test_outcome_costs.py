"""What a run of a decided job cost by the terms of the site's objective."""

import msgspec
import pytest

from rlalloc.config import ObjectiveSection
from rlalloc.errors import PluginError
from rlalloc.objective import REWARDS, TERM_NAMES, Resources, Weights
from rlalloc.store import Circumstances, Decision
from rlallocd.outcomes.outcome_costs import costs_of_run, mean_costs, reward_of
from rlallocd.slurm import AccountingRecord
from tests.plugin_failures import no_plugin_fails

from .test_outcomes_of_parts import DECISION, TASK

CIRCUMSTANCES = Circumstances(cluster=Resources(gpus=10, cpus=100, mem_mib=100_000), node_gpus=2, user_running_gpus=4)
KNOWN = msgspec.structs.replace(DECISION, circumstances=CIRCUMSTANCES)
MEASURED = msgspec.structs.replace(TASK, consumed_energy_j=16_000.0, cpu_s_used=200.0, mem_mib_used=250.0)
SCALE_S = 60 + 100


def costs(
    decision: Decision = KNOWN, record: AccountingRecord = MEASURED, objective: ObjectiveSection | None = None
) -> dict[str, float | None]:
    found = costs_of_run(decision, record, objective or ObjectiveSection(), no_plugin_fails, applied=False)
    assert found is not None
    return found


def test_what_was_accounted_counts() -> None:
    """100 s on two GPUs, four CPUs and 1000 MiB, after 10 s; ten CPUs and 10,000 MiB come with a GPU."""
    found = costs()
    assert tuple(found) == TERM_NAMES
    assert found["wait"] == pytest.approx((10 + 10) / SCALE_S)  # and the price: a tenth of the cluster for 100 s
    assert found["jct"] == pytest.approx((110 + 10) / SCALE_S)
    assert found["gpu_held"] == pytest.approx(200 / SCALE_S)
    assert found["cpu_waste"] == pytest.approx((400 - 200) / 10 / SCALE_S)
    assert found["mem_waste"] == pytest.approx((1000 - 250) * 100 / 10_000 / SCALE_S)
    assert found["energy"] == pytest.approx(16_000 / 400 / SCALE_S)
    assert found["fairness"] == pytest.approx(200 * (4 + 1) / 10 / SCALE_S)


def test_energy_of_a_shared_node_is_not_the_jobs_own() -> None:
    shared = msgspec.structs.replace(KNOWN, circumstances=msgspec.structs.replace(CIRCUMSTANCES, node_gpus=8))
    modelled = costs(record=msgspec.structs.replace(MEASURED, consumed_energy_j=None))["energy"]
    assert costs(shared)["energy"] == modelled != costs()["energy"]


def test_what_slurm_did_not_gather_is_not_known() -> None:
    """Then a site that gives it a weight has no reward of that job, and all others do."""
    found = costs(record=TASK)
    assert (found["cpu_waste"], found["mem_waste"]) == (None, None)
    assert reward_of(found, ObjectiveSection()) == pytest.approx(-120 / SCALE_S)
    assert reward_of(found, ObjectiveSection(weights=Weights(cpu_waste=0.1))) is None


def test_decisions_of_an_earlier_version_have_their_rewards() -> None:
    found = costs(DECISION)
    assert found["fairness"] is None
    assert reward_of(found, ObjectiveSection()) == reward_of(costs(), ObjectiveSection())


def test_a_run_that_never_began_costs_nothing_known() -> None:
    record = msgspec.structs.replace(TASK, started_s=None)
    assert costs_of_run(KNOWN, record, ObjectiveSection(), no_plugin_fails, applied=False) is None


def test_a_plug_in_that_fails_costs_the_reward_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REWARDS, "get", lambda _: lambda of, at: 1 / 0)
    objective = ObjectiveSection(plugin_weights={"gold": 0.5})
    failed: list[PluginError] = []
    found = costs_of_run(KNOWN, MEASURED, objective, failed.append, applied=False)
    assert found == costs() | {"gold": None}
    assert reward_of(found, objective) is None
    assert "gold" in str(failed[0])
    monkeypatch.setattr(REWARDS, "get", lambda _: lambda of, at: of.gpu_s)
    paid = costs(objective=objective)
    assert paid["gold"] == paid["gpu_held"]
    assert reward_of(paid, objective) == pytest.approx(-120 / SCALE_S - 0.5 * 200 / SCALE_S)


def test_the_mean_of_tasks_is_known_where_all_are() -> None:
    assert mean_costs([]) is None
    assert mean_costs([{"jct": 1.0, "energy": 2.0}, {"jct": 3.0, "energy": None}]) == {"jct": 2.0, "energy": None}
