"""Taking back a size that no longer goes with the CPUs of a task that the job's user has set since."""

import msgspec
import pytest

from rlalloc.job import Allocation
from rlalloc.store import Application, JobHistory
from rlallocd.slurm import JobRecord, RequestFields
from rlallocd.transactions.journal_entries import restorations_for, taking_back, updates_of, verify
from tests.core.test_store import APPLICATION

from .test_redecision_rules import pending_job

REQUEST = Allocation(
    nodes=1, gpus_per_node=4, tasks_per_node=1, cpus_per_task=16, mem_mib_per_node=64_000, time_limit_s=600
)
DECIDED = msgspec.structs.replace(REQUEST, gpus_per_node=2, cpus_per_task=8, mem_mib_per_node=32_000)
CPUS_OF_USER = 20


def as_size(size: Allocation, **fields: int | str) -> JobRecord:
    """A job as an absolute update leaves it."""
    of_size = RequestFields(
        min_nodes=1,
        max_nodes=1,
        tasks_per_node=1,
        cpus_per_task=size.cpus_per_task,
        min_cpus=size.cpus,
        min_cpus_per_node=size.cpus_per_node,
        mem_mib_per_node=size.mem_mib_per_node,
        gpus_per_node=size.gpus_per_node,
        tres_per_node=f"gres:gpu:{size.gpus_per_node}",
    )
    return pending_job(7, size, fields=msgspec.structs.replace(of_size, **fields))


def begun(before: JobRecord, intended: Allocation, **nice: int | None) -> Application:
    return msgspec.structs.replace(
        APPLICATION,
        job_id=7,
        state="begun",
        original=REQUEST,
        intended=intended,
        record=msgspec.json.encode(before).decode(),
        **({"own_nice": None, "added_nice": None} | nice),
    )


@pytest.mark.parametrize(
    ("terms", "cpus_of_user", "cpus_after"),
    [
        ({}, CPUS_OF_USER, CPUS_OF_USER),
        ({}, 2, 16),
        ({"cpus_per_task": 1, "cpus_per_gpu": 4, "cpus_per_tres": "gres:gpu:4"}, CPUS_OF_USER, 16),
    ],
    ids=["own terms", "fewer than requested", "CPUs per GPU"],
)
def test_what_is_sent_verifies_as_the_request(
    terms: dict[str, int | str], cpus_of_user: int, cpus_after: int
) -> None:
    """Else the restoration would be sent again in each cycle, for as long as the job waits."""
    now = as_size(DECIDED, cpus_per_task=cpus_of_user)
    entry = taking_back(now, [begun(as_size(REQUEST, **terms), DECIDED)], "it waits")
    assert entry is not None
    (plan,) = restorations_for(entry, now)
    assert dict(plan.fields)["CPUsPerTask"] == str(cpus_after)
    assert verify(as_size(REQUEST, cpus_per_task=cpus_after), entry).verdict == "as submitted"


def test_of_a_job_that_has_only_our_nice_nothing_else_is_touched() -> None:
    before = as_size(REQUEST)
    now = msgspec.structs.replace(as_size(REQUEST, cpus_per_task=CPUS_OF_USER), nice=before.nice + 100)
    entry = taking_back(now, [begun(before, REQUEST, own_nice=before.nice, added_nice=100)], "asked")
    assert entry is not None
    (plan,) = restorations_for(entry, now)
    assert "Nice" in dict(plan.fields)
    assert not dict(plan.fields).keys() - {"Nice", "AdminComment"}
    assert verify(msgspec.structs.replace(now, nice=before.nice), entry).verdict == "as submitted"


@pytest.mark.parametrize("cpus_per_task", [DECIDED.cpus_per_task, CPUS_OF_USER], ids=["as decided", "of the user"])
def test_the_request_comes_back_where_num_cpus_is_another(cpus_per_task: int) -> None:
    """As a refused NumNodes=2 leaves it: the user did not ask for so many."""
    now = as_size(DECIDED, cpus_per_task=cpus_per_task, min_cpus=2 * DECIDED.cpus)
    entry = taking_back(now, [begun(as_size(REQUEST), DECIDED)], "it waits")
    assert entry is not None
    (plan,) = restorations_for(entry, now)
    assert dict(plan.fields)["NumCPUs"] == str(REQUEST.cpus)
    assert verify(as_size(REQUEST), entry).verdict == "as submitted"


@pytest.mark.parametrize("of_user", [{"mem_mib_per_node": 3000}, {"min_cpus": 20}], ids=["memory", "NumCPUs"])
def test_what_others_made_of_anything_else_stays(of_user: dict[str, int]) -> None:
    """An accepted NumCPUs moves the total, too."""
    now = as_size(DECIDED, **{"cpus_per_task": CPUS_OF_USER, **of_user})
    now = msgspec.structs.replace(now, cpus=of_user.get("min_cpus", now.cpus))
    assert taking_back(now, [begun(as_size(REQUEST), DECIDED)], "it waits") is None


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_request_of_one_task_is_sent_to_that_task_alone(nodes: int) -> None:
    """Its record does not show the rest of its array, and Slurm takes the array's id for all tasks."""
    task = msgspec.structs.replace(as_size(DECIDED), job_id=9, array_job_id=7, array_tasks="3", restarts=1)
    entry = begun(as_size(REQUEST), msgspec.structs.replace(DECIDED, nodes=nodes))
    for application in (entry, msgspec.structs.replace(entry, record=None)):
        (plan,) = restorations_for(application, task)
        assert plan.target == "7_3"


def test_the_tasks_with_ids_of_their_own_may_have_a_size_that_the_others_gave_back() -> None:
    array = msgspec.structs.replace(as_size(DECIDED), array_job_id=7)
    entries = [
        msgspec.structs.replace(begun(as_size(REQUEST), DECIDED), state=state)
        for state in ("left", "begun", "restored", "restoring")
    ]
    history = JobHistory(decisions=(), applications=tuple(entries))
    assert [each.state for each in updates_of(array, history)] == ["begun"]
    task = msgspec.structs.replace(array, job_id=9)
    assert [each.state for each in updates_of(task, history)] == ["begun", "restored"]
