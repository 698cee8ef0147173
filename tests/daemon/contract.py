"""What every reader has to say of the jobs and nodes that scripts/record-fixtures.sh submits, on every Slurm.

What one version says otherwise stands with its recordings, in `differences.toml`.

The tables are whole: `assert_the_jobs` fails where a field of JobRecord is in neither USUAL nor MOMENTS, and
`assert_the_requests` where one of RequestFields has no value; so a new field cannot be added without saying here what
it is for each form of submission.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from rlalloc.tres import gpu_type_of, gpus_of_request
from rlallocd.cluster.node_demands import names_in
from rlallocd.slurm import AccountingRecord, JobRecord, NodeNeeds, NodeRecord, RequestFields
from rlallocd.slurm.generations import capabilities_of

from .recordings import differences_of

GIB: Final = 1024
HOUR: Final = 3600
DAY: Final = 24 * HOUR
ADMIN_COMMENT: Final = "JS1:abc another tool's; rlalloc: first 'words' | second"

USUAL: Final[dict[str, Any]] = {
    "features": "",
    "excluded_nodes": "",
    "needs": NodeNeeds(),
    "user": "llm-alice",
    "account": "llm",
    "partition": "gpu",
    "state": "PENDING",
    "reason": "JobHeldUser",
    "time_limit_s": HOUR,
    "admin_comment": "",
    "nice": 0,
    "nodes": 1,
    "tasks": 1,
    "cpus": 1,
    "gpus": 2,
    "mem_mib": 2 * GIB,
    "gpu_type": "",
    "is_batch": True,
    "is_array": False,
    "is_split": False,
    "array_tasks": "",
    "is_heterogeneous": False,
    "is_exclusive": False,
    "is_shard": False,
    "has_deadline": False,
    "nodes_certain": True,
    "required_nodes": "",
    "has_run": False,
    "reservation": "",
    "time_min_s": 0,
    "restarts": 0,
    "is_scrontab": False,
    "is_federated": False,
    "qos": "normal",
    "waiting_tasks": 1,
    "licenses": "",
    "unread": False,
}
MOMENTS: Final = frozenset(
    {
        *("job_id", "name", "submitted_s", "begin_s", "started_s", "priority"),
        *("array_job_id", "fields", "held_nodes"),
    }
)
"""Fields for which `_assert_the_moments` has rules, since they differ from run to run, or `assert_the_requests`."""


def _running(**values: Any) -> dict[str, Any]:
    return {"state": "RUNNING", "reason": "None", "has_run": True, **values}


JOBS: Final[dict[str, dict[str, Any]]] = {
    "failed": {"state": "FAILED", "has_run": True, "reason": "NonZeroExitCode", "gpus": 0, "mem_mib": 8_000},
    "cancelled": {"state": "CANCELLED"},
    "plain": _running(cpus=8, mem_mib=40 * GIB, time_limit_s=1800, admin_comment=ADMIN_COMMENT),
    "typed": _running(cpus=8, mem_mib=40_000, time_limit_s=1800, gpu_type="a100"),
    "two-nodes": _running(nodes=2, tasks=2, cpus=32, gpus=8, mem_mib=200 * GIB, time_limit_s=DAY),
    "array RUNNING": _running(cpus=4, gpus=1, mem_mib=8 * GIB, time_limit_s=1800, is_array=True, is_split=True),
    "array PENDING": {
        "reason": "JobArrayTaskLimit",
        "cpus": 4,
        "gpus": 1,
        "mem_mib": 8 * GIB,
        "time_limit_s": 1800,
        "is_array": True,
        "is_split": True,
        "array_tasks": "1-3",
    },
    "per-task": _running(tasks=2, cpus=8, mem_mib=20 * GIB, time_limit_s=2700, gpu_type="a100"),
    "pipe|käse": _running(tasks=3, cpus=6, gpus=0, mem_mib=6 * GIB),
    "interactive": _running(gpus=1, mem_mib=GIB, time_limit_s=600, is_batch=False),
    "whole-node": _running(cpus=64, gpus=8, mem_mib=GIB, is_exclusive=True, required_nodes="n4"),
    "held": {"tasks": 8, "cpus": 32, "gpus": 8, "mem_mib": 64 * GIB, "gpu_type": "a100"},
    "dependent": {"reason": "Dependency", "mem_mib": 4 * GIB},
    "begin": {"reason": "BeginTime", "tasks": 8, "cpus": 32, "gpus": 8, "mem_mib": 64 * GIB},
    "sockets": {
        "needs": NodeNeeds(sockets=2),
        "tasks": 2,
        "cpus": 8,
        "gpus": 4,
        "mem_mib": 8 * GIB,
        "gpu_type": "a100",
    },
    "exclusive": {
        "reason": "Resources",
        "nodes": 3,
        "tasks": 3,
        "cpus": 3,
        "gpus": 24,
        "mem_mib": 24_000,
        "is_exclusive": True,
    },
    "all-memory": {"gpus": 1, "mem_mib": 500 * GIB},
    "named-nodes": {"nodes": 2, "tasks": 2, "cpus": 2, "required_nodes": "n[1-2]"},
    "het 1": {"gpus": 1, "mem_mib": GIB, "is_heterogeneous": True},
    "het 2": {"mem_mib": GIB, "is_heterogeneous": True},
    "one-of-four": {"cpus": 4, "mem_mib": 8 * GIB},
    "gpus-of-job": {"tasks": 4, "cpus": 8, "gpus": 4, "mem_mib": 16 * GIB},
    "tasks-per-gpu": {"tasks": 4, "cpus": 4, "mem_mib": 16 * GIB},
    "cpus-per-gpu": {"cpus": 12, "mem_mib": 16 * GIB},
    "cpus-per-gpu-mem-per-cpu": {"cpus": 12, "mem_mib": 12 * GIB},
    "tasks-per-node": {"nodes": 2, "tasks": 4, "cpus": 4, "gpus": 4, "mem_mib": 4 * GIB},
    "hint": {"needs": NodeNeeds(threads=1)},
    "constraint": {"features": "fast"},
    "without-a-node": {"excluded_nodes": "n4"},
    "requeue": {},
    "deadline": {"has_deadline": True},
    "time-min": {"time_min_s": 1800},
    "no-limit-of-time": {"time_limit_s": 0},
    "exclusive-user": {},
    "overcommitted": {},
    "reserved": {"reason": "Reservation", "reservation": "later"},
    "scrontab": {"is_scrontab": True, "reason": "BeginTime", "gpus": 1, "mem_mib": GIB, "time_limit_s": 300},
}
"""What differs from USUAL in the record of each job."""

_FOR_FOUR_CPUS_A_TASK: Final = {"cpus_per_task": 4, "min_cpus_per_node": 4}
USUAL_REQUEST: Final[dict[str, Any]] = dict.fromkeys(RequestFields.__struct_fields__, 0) | {
    **dict.fromkeys(("min_nodes", "max_nodes", "cpus_per_task", "min_cpus", "min_cpus_per_node"), 1),
    "mem_mib_per_node": 2 * GIB,
    "gpus_per_node": 2,
}
REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "array PENDING": {
        **_FOR_FOUR_CPUS_A_TASK,
        "max_nodes": 0,
        "min_cpus": 4,
        "mem_mib_per_node": 8 * GIB,
        "gpus_per_node": 1,
    },
    "held": {
        **_FOR_FOUR_CPUS_A_TASK,
        "max_nodes": 0,
        "min_cpus": 32,
        "mem_mib_per_node": 64 * GIB,
        "gpus_per_node": 0,
        "gpus_per_job": 8,
    },
    "dependent": {"mem_mib_per_node": 4 * GIB, "gpus_per_node": 0, "gpus_per_job": 2},
    "begin": {
        **_FOR_FOUR_CPUS_A_TASK,
        "max_nodes": 0,
        "min_cpus": 32,
        "mem_mib_per_node": 64 * GIB,
        "gpus_per_node": 0,
        "gpus_per_task": 1,
    },
    "sockets": {
        **_FOR_FOUR_CPUS_A_TASK,
        "min_cpus": 8,
        "mem_mib_per_node": 8 * GIB,
        "gpus_per_node": 0,
        "gpus_per_socket": 2,
    },
    "exclusive": {
        "min_nodes": 3,
        "max_nodes": 3,
        "min_cpus": 3,
        "mem_mib_per_node": 0,
        "mem_mib_per_cpu": 8_000,
        "gpus_per_node": 8,
    },
    "all-memory": {"mem_mib_per_node": 0, "gpus_per_node": 1},
    "named-nodes": {"min_nodes": 2, "max_nodes": 2, "min_cpus": 2, "mem_mib_per_node": GIB, "gpus_per_node": 1},
    "het 1": {"mem_mib_per_node": GIB, "gpus_per_node": 1},
    "het 2": {"mem_mib_per_node": GIB},
    "one-of-four": {
        **_FOR_FOUR_CPUS_A_TASK,
        "max_nodes": 4,
        "tasks_per_node": 1,
        "min_cpus": 4,
        "mem_mib_per_node": 8 * GIB,
    },
    "gpus-of-job": {
        "cpus_per_task": 2,
        "min_cpus_per_node": 2,
        "min_cpus": 8,
        "mem_mib_per_node": 16 * GIB,
        "gpus_per_node": 0,
        "gpus_per_job": 4,
    },
    # Since 23.02 the memory of a GPU stands in the field of the node's, too.
    "tasks-per-gpu": {
        "min_cpus": 4,
        "mem_mib_per_node": 8 * GIB,
        "mem_mib_per_gpu": 8 * GIB,
        "gpus_per_node": 0,
        "gpus_per_job": 2,
    },
    "cpus-per-gpu": {
        "min_cpus": 12,
        "mem_mib_per_node": 8 * GIB,
        "mem_mib_per_gpu": 8 * GIB,
        "gpus_per_node": 0,
        "gpus_per_job": 2,
        "cpus_per_gpu": 6,
    },
    "cpus-per-gpu-mem-per-cpu": {
        "min_cpus": 12,
        "mem_mib_per_node": 0,
        "mem_mib_per_cpu": GIB,
        "gpus_per_node": 0,
        "gpus_per_job": 2,
        "cpus_per_gpu": 6,
    },
    "tasks-per-node": {
        "min_nodes": 2,
        "max_nodes": 0,
        "tasks_per_node": 2,
        "min_cpus": 4,
        "min_cpus_per_node": 2,
    },
    "scrontab": {"max_nodes": 0, "mem_mib_per_node": GIB, "gpus_per_node": 1},
}
"""What differs from USUAL_REQUEST in the single fields of each pending job's request."""
_TEXTS: Final = {
    "tres_per_node": "gpus_per_node",
    "tres_per_job": "gpus_per_job",
    "tres_per_task": "gpus_per_task",
    "tres_per_socket": "gpus_per_socket",
    "cpus_per_tres": "cpus_per_gpu",
    "mem_per_tres": "mem_mib_per_gpu",
}
"""Fields that are texts in the words of each version, and the count that each has to name."""
NODES: Final = ("n1", "n2", "n3", "n4")


def by_name(jobs: Collection[JobRecord]) -> dict[str, JobRecord]:
    """Jobs by name; an array's and a heterogeneous job's parts by what tells them apart."""
    names = {"array": "array {0.state}", "het": "het {0.gpus}"}
    return {names.get(job.name, "{0.name}").format(job): job for job in jobs}


def assert_the_jobs(jobs: Collection[JobRecord], version: str) -> None:
    """Hold every field of every job to the table."""
    said_nothing_of = set(JobRecord.__struct_fields__) - set(USUAL) - MOMENTS
    assert said_nothing_of == set(), "add these fields to tests/daemon/contract.py"
    differences = differences_of(capabilities_of(version).release)
    expected = {
        name: USUAL | changes | differences.get("jobs", {}).get(name, {})
        for name, changes in JOBS.items()
        if name not in differences.get("missing", ())
    }
    found = by_name(jobs)
    assert {name: _without_moments(job) for name, job in found.items()} == expected
    assert len(jobs) == len(found)
    _assert_the_moments(found)


def assert_the_requests(jobs: Collection[JobRecord], version: str) -> None:
    """Hold the single fields of pending jobs, as `read_back` tells them, to the tables."""
    differences = differences_of(capabilities_of(version).release)
    found = {name: job for name, job in by_name(jobs).items() if job.pending}
    expected = {
        name: USUAL_REQUEST | REQUESTS.get(name, {}) | differences.get("requests", {}).get(name, {})
        for name, changes in JOBS.items()
        if changes.get("state", "PENDING") == "PENDING" and name not in differences.get("missing", ())
    }
    assert {name: _counts(job.fields) for name, job in found.items()} == {
        name: {key: value for key, value in fields.items() if key not in _TEXTS} for name, fields in expected.items()
    }
    for name, job in found.items():
        assert job.fields.reported
        texts = {text: getattr(job.fields, text) for text in _TEXTS}
        assert {text: gpus_of_request(said) for text, said in texts.items()} == {
            text: expected[name][count] for text, count in _TEXTS.items()
        }
        assert gpu_type_of(*texts.values()) == JOBS[name].get("gpu_type", "")


def assert_the_nodes(nodes: Collection[NodeRecord], version: str) -> None:
    """Hold nodes to the testbed's shape and to what the running jobs take of all of them together."""
    assert tuple(node.name for node in nodes) == NODES
    assert {(node.cpus, node.mem_mib, node.gpus, node.partitions) for node in nodes} == {(64, 512_000, 8, ("gpu",))}
    assert {node.gpu_types for node in nodes} == {frozenset({"a100"})}
    assert [set(node.features) for node in nodes] == [{"fast"}, {"fast"}, {"fast"}, set()]
    assert [node.usable for node in nodes] == [True, True, True, False]
    missing = differences_of(capabilities_of(version).release).get("missing", ())
    running = [
        USUAL | changes for name, changes in JOBS.items() if changes.get("state") == "RUNNING" and name not in missing
    ]
    assert sum(node.cpus_used for node in nodes) == sum(job["cpus"] for job in running)
    assert sum(node.gpus_used for node in nodes) == sum(job["gpus"] for job in running)
    assert sum(node.mem_mib_used for node in nodes) == sum(job["mem_mib"] for job in running)


def assert_the_accounts(records: Collection[AccountingRecord], jobs: Mapping[str, JobRecord]) -> None:
    """Totals are those allocated; times that have not come are None; no peak of memory is not zero."""
    by_id = {record.job_id: record for record in records}
    failed = by_id[jobs["failed"].job_id]
    assert (failed.state, failed.exit_code, failed.gpus, failed.mem_mib) == ("FAILED", "3:0", 0, 8000)
    assert failed.ended_s is not None
    assert (failed.max_rss_mib, failed.consumed_energy_j) == (None, None)
    large = by_id[jobs["two-nodes"].job_id]
    assert (large.state, large.nodes, large.cpus, large.gpus) == ("RUNNING", 2, 32, 8)
    assert large.mem_mib == 200 * GIB
    assert large.ended_s is None
    assert (large.submitted_s, large.started_s) == (jobs["two-nodes"].submitted_s, jobs["two-nodes"].started_s)


def _counts(fields: RequestFields) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(fields).items() if key not in _TEXTS}


def _without_moments(job: JobRecord) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(job).items() if key not in MOMENTS}


def _assert_the_moments(found: Mapping[str, JobRecord]) -> None:
    assert len({job.job_id for job in found.values()} - {0}) == len(found)
    for job in found.values():
        assert job.submitted_s > 0
        assert len(names_in(job.held_nodes) or ()) == (job.nodes if job.has_run else 0)
        if job.state == "RUNNING":
            assert 0 < job.submitted_s <= job.begin_s <= job.started_s
        if job.reason == "JobHeldUser" and job.pending:
            assert (job.priority, job.begin_s) == (0, 0)
    arrays = {name: job.array_job_id for name, job in found.items() if job.array_job_id}
    assert set(arrays) == {"array RUNNING", "array PENDING"}
    assert set(arrays.values()) <= {found[name].job_id for name in arrays}
    assert {found[name].base_id for name in arrays} == set(arrays.values())
    for name in ("plain", "exclusive", "begin"):
        assert found[name].priority > 0
    assert found["begin"].begin_s - found["begin"].submitted_s in range(HOUR - 1, HOUR + 2)
