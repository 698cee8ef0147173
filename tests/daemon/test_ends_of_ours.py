"""Ends that were our doing: which they are, what they cost, who learns from them, and that a restart forgets none."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import ObjectiveSection
from rlalloc.store import JobHistory, Store
from rlalloc.usage.family_kills import FamilyKills
from rlallocd.outcomes.ends_of_ours import GPU_MARKER, our_doing
from rlallocd.outcomes.kills_of_ours import KillsOfOurs
from rlallocd.outcomes.outcomes import outcomes_of
from tests.core.test_store import APPLICATION, DECISION
from tests.daemon.test_outcomes import ENDED
from tests.plugin_failures import no_plugin_fails

REQUEST = DECISION.request
SMALLER = msgspec.structs.replace(REQUEST, gpus_per_node=max(1, REQUEST.gpus_per_node // 2))
LESS_MEMORY = msgspec.structs.replace(REQUEST, mem_mib_per_node=REQUEST.mem_mib_per_node // 2)
LESS_CPUS = msgspec.structs.replace(REQUEST, cpus_per_task=max(1, REQUEST.cpus_per_task // 2))
CASES = [
    (LESS_MEMORY, "OUT_OF_MEMORY", "0:125", "", "out-of-memory"),
    (LESS_MEMORY, "FAILED", "0:9", "", "out-of-memory"),
    (LESS_MEMORY, "FAILED", "137:0", "", "out-of-memory"),
    (LESS_MEMORY, "FAILED", "135:0", "", "out-of-memory"),
    (LESS_MEMORY, "FAILED", "1:0", "", None),
    (LESS_MEMORY, "CANCELLED", "0:9", "", None),
    (LESS_MEMORY, "COMPLETED", "0:0", "", None),
    (SMALLER, "OUT_OF_MEMORY", "0:125", "", None),
    (SMALLER, "FAILED", "1:0", f"mine; {GPU_MARKER}", "gpu-out-of-memory"),
    (LESS_MEMORY, "FAILED", "1:0", GPU_MARKER, None),
    (SMALLER, "TIMEOUT", "0:0", "", "timeout"),
    (LESS_CPUS, "TIMEOUT", "0:0", "", "timeout"),
    (REQUEST, "TIMEOUT", "0:0", "", None),
    (REQUEST, "OUT_OF_MEMORY", "0:125", GPU_MARKER, None),
]


@pytest.mark.parametrize(("size", "state", "exit_code", "comment", "cause"), CASES)
def test_which_ends_were_our_doing(size: object, state: str, exit_code: str, comment: str, cause: str | None) -> None:
    decision = msgspec.structs.replace(DECISION, allocation=size)
    record = msgspec.structs.replace(ENDED, state=state, exit_code=exit_code, comment=comment)
    assert our_doing(decision, record, applied=True) == cause
    assert our_doing(decision, record, applied=False) is None


def decided(job_id: int = 7, size: object = SMALLER) -> JobHistory:
    decision = msgspec.structs.replace(DECISION, id=f"d{job_id}", job_id=job_id, allocation=size)
    began = msgspec.structs.replace(
        APPLICATION, decision_id=decision.id, job_id=job_id, state="begun", intended=decision.allocation
    )
    return JobHistory(decisions=(decision,), applications=(began,))


def test_it_costs_as_much_as_running_out_of_memory() -> None:
    failed = msgspec.structs.replace(ENDED, state="FAILED", exit_code="1:0", comment=GPU_MARKER)
    killed = msgspec.structs.replace(ENDED, state="OUT_OF_MEMORY")
    of_program = msgspec.structs.replace(failed, comment="")
    ours, alike, other = (
        outcomes_of([decided()], [record], ObjectiveSection(), no_plugin_fails)[0]
        for record in (failed, killed, of_program)
    )
    assert (ours.our_doing, other.our_doing) == ("gpu-out-of-memory", None)
    assert ours.reward == alike.reward
    assert ours.reward is not None  # so that training and the gate count it
    assert other.reward is None


def test_one_task_of_an_array_is_enough() -> None:
    tasks = [
        msgspec.structs.replace(ENDED, part="_1"),
        msgspec.structs.replace(ENDED, part="_2", state="FAILED", exit_code="1:0", comment=GPU_MARKER),
        msgspec.structs.replace(ENDED, part="_3", state="OUT_OF_MEMORY"),
    ]
    (outcome,) = outcomes_of([decided()], tasks, ObjectiveSection(), no_plugin_fails)
    assert (outcome.state, outcome.our_doing) == ("FAILED", "gpu-out-of-memory")


def test_a_restarted_daemon_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlallocd.outcomes.kills_of_ours.time.time", lambda: float(ENDED.ended_s or 0))
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    job = decided()
    store.add_decisions(job.decisions)
    counters: Counter[str] = Counter()
    kills = FamilyKills()
    learner = KillsOfOurs(store, kills, counters, lambda job: msgspec.structs.replace(job, user=f"p-{job.user}"))
    record = msgspec.structs.replace(ENDED, state="FAILED", exit_code="1:0", comment=GPU_MARKER)
    outcomes = outcomes_of([job], [record], ObjectiveSection(), no_plugin_fails)
    store.add_outcomes(outcomes)
    learner.learn([job], outcomes)
    assert counters == {"our_doing_gpu-out-of-memory": 1}
    again = FamilyKills()
    KillsOfOurs(store, again, counters, lambda job: msgspec.structs.replace(job, user=f"p-{job.user}"))
    for each in (kills, again):
        found = each.in_force(f"p-{DECISION.user}", DECISION.job_name, 5)
        assert found is not None
        assert (found.job_id, found.cause) == (7, "gpu-out-of-memory")
    assert counters["our_doing_gpu-out-of-memory"] == 1  # counted once, when it came in
    store.close()
