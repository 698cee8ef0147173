"""What is read of jobs and nodes: from recorded answers of two versions, and on a real site, by every reader.

The jobs are those that scripts/record-fixtures.sh submits, so recorded and live values are held to one table.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from rlallocd.slurm import ControllerConfig, JobRecord, NodeRecord, RequestFields, SlurmError, UnexpectedAnswer
from rlallocd.slurm.accounting import read_accounting
from rlallocd.slurm.commands import Commands
from rlallocd.slurm.connection import _choose
from rlallocd.slurm.control import Control
from rlallocd.slurm.json_reader import JsonReader, job_record, node_record
from rlallocd.slurm.request_details import RequestDetails, request_details
from rlallocd.slurm.squeue_reader import _COLUMNS, SqueueReader
from rlallocd.slurm.states import is_usable, job_state
from rlallocd.slurm.tres import gpu_type_of, gpus_of, gpus_of_request, memory_mib, parse_tres
from slurm_testbed import Site, SiteSpec, TestbedError
from slurm_testbed.requirements import check_requirements

Found = TypeVar("Found")

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("22.05", "25.11")
MIB = 1024
HOUR = 3600

# name: nodes, tasks, CPUs, GPUs, MiB, GPU type, time limit, state, reason
JOBS: dict[str, tuple[int, int, int, int, float, str, int, str, str]] = {
    "plain": (1, 1, 8, 2, 40 * MIB, "", 1800, "RUNNING", "None"),
    "typed": (1, 1, 8, 2, 40_000, "a100", 1800, "RUNNING", "None"),
    "two-nodes": (2, 2, 32, 8, 200 * MIB, "", 24 * HOUR, "RUNNING", "None"),
    "array RUNNING": (1, 1, 4, 1, 8 * MIB, "", 1800, "RUNNING", "None"),
    "array PENDING": (1, 1, 4, 1, 8 * MIB, "", 1800, "PENDING", "JobArrayTaskLimit"),
    "per-task": (1, 2, 8, 2, 20 * MIB, "a100", 2700, "RUNNING", "None"),
    "pipe|käse": (1, 3, 6, 0, 6 * MIB, "", HOUR, "RUNNING", "None"),
    "interactive": (1, 1, 1, 1, MIB, "", 600, "RUNNING", "None"),
    "held": (1, 8, 32, 8, 64 * MIB, "a100", HOUR, "PENDING", "JobHeldUser"),
    "dependent": (1, 1, 1, 2, 4 * MIB, "", HOUR, "PENDING", "Dependency"),
    "begin": (1, 8, 32, 8, 64 * MIB, "", HOUR, "PENDING", "BeginTime"),
    "sockets": (1, 2, 8, 4, 8 * MIB, "a100", HOUR, "PENDING", "JobHeldUser"),
    "exclusive": (3, 3, 3, 24, 24_000, "", HOUR, "PENDING", "Resources"),
    "all-memory": (1, 1, 1, 1, 500 * MIB, "", HOUR, "PENDING", "JobHeldUser"),
    "named-nodes": (2, 2, 2, 2, 2 * MIB, "", HOUR, "PENDING", "JobHeldUser"),
    "het 1": (1, 1, 1, 1, MIB, "", HOUR, "PENDING", "JobHeldUser"),
    "het 2": (1, 1, 1, 2, MIB, "", HOUR, "PENDING", "JobHeldUser"),
    "failed": (1, 1, 1, 0, 8_000, "", HOUR, "FAILED", "NonZeroExitCode"),
}
NODES_GUESSED_BY_22_05 = {"held": 2}
"""Slurm 22.05 guesses how many nodes a job without --nodes will take, by the cores of one socket; it is declined."""
ADMIN_COMMENT = "JS1:abc another tool's; rlalloc: first 'words' | second"


def poll_until_empty(read: Callable[[], list[Found]], timeout_s: float = 60) -> list[Found]:
    """Read again until nothing is found or the time is over; returns what was found last."""
    end = time.monotonic() + timeout_s
    while (found := read()) and time.monotonic() < end:
        time.sleep(0.5)
    return found


def without_fields(job: JobRecord | None) -> JobRecord | None:
    return job and msgspec.structs.replace(job, fields=RequestFields())


def by_name(jobs: tuple[JobRecord, ...]) -> dict[str, JobRecord]:
    """Jobs by name; an array's and a heterogeneous job's parts by what tells them apart."""
    names = {"array": "array {0.state}", "het": "het {0.gpus}"}
    return {names.get(job.name, "{0.name}").format(job): job for job in jobs}


def assert_the_jobs(jobs: tuple[JobRecord, ...], version: str) -> None:
    """Hold jobs to the table, and each to what is special about its form."""
    found = by_name(jobs)
    guessed = NODES_GUESSED_BY_22_05 if version.startswith("22.05") else {}
    expected = {name: (guessed.get(name, row[0]), *row[1:]) for name, row in JOBS.items()}
    assert {
        name: (
            *(job.nodes, job.tasks, job.cpus, job.gpus, job.mem_mib),
            *(job.gpu_type, job.time_limit_s, job.state, job.reason),
        )
        for name, job in found.items()
    } == expected
    assert {name for name, job in found.items() if not job.is_batch} == {"interactive"}
    assert {name for name, job in found.items() if job.is_array} == {"array RUNNING", "array PENDING"}
    assert {name for name, job in found.items() if job.is_heterogeneous} == {"het 1", "het 2"}
    assert {name for name, job in found.items() if job.is_exclusive} == {"exclusive"}
    assert {name for name, job in found.items() if not job.nodes_certain} == set(guessed)
    assert {name: job.required_nodes for name, job in found.items() if job.required_nodes} == {
        "named-nodes": "n[1-2]"
    }
    assert {job.admin_comment for job in jobs} == {"", ADMIN_COMMENT}
    assert found["plain"].admin_comment == ADMIN_COMMENT
    assert {(job.user, job.account, job.partition) for job in jobs} == {("llm-alice", "llm", "gpu")}
    assert found["held"].priority == 0 < found["plain"].priority
    assert found["begin"].begin_s - found["begin"].submitted_s in range(HOUR - 1, HOUR + 2)
    assert found["held"].begin_s == 0
    for name in ("plain", "two-nodes"):
        job = found[name]
        assert 0 < job.submitted_s <= job.begin_s <= job.started_s
        assert job.expected_end_s == job.started_s + job.time_limit_s


def assert_the_nodes(nodes: tuple[NodeRecord, ...]) -> None:
    """Hold nodes to the testbed's shape and to what the running jobs take of all of them together."""
    assert [node.name for node in nodes] == ["n1", "n2", "n3", "n4"]
    assert {(node.cpus, node.mem_mib, node.gpus, node.partitions) for node in nodes} == {(64, 512_000, 8, ("gpu",))}
    assert [node.usable for node in nodes] == [True, True, True, False]
    running = [row for row in JOBS.values() if row[7] == "RUNNING"]
    assert sum(node.cpus_used for node in nodes) == sum(row[2] for row in running)
    assert sum(node.gpus_used for node in nodes) == sum(row[3] for row in running)
    assert sum(node.mem_mib_used for node in nodes) == sum(row[4] for row in running)


def recorded(version: str, name: str) -> str:
    return (FIXTURES / f"slurm-{version}" / name).read_text(encoding="utf-8")


class Prints(Commands):
    """Commands that all print the same."""

    def __init__(self, text: str) -> None:
        super().__init__(timeout_s=1)
        self._text = text

    def run(self, *words: str) -> str:
        return self._text


@pytest.mark.parametrize("version", VERSIONS)
class TestRecordedAnswers:
    def test_jobs(self, version: str) -> None:
        jobs = msgspec.json.decode(recorded(version, "squeue.json"))["jobs"]
        assert_the_jobs(tuple(job_record(job) for job in jobs), version)

    def test_nodes(self, version: str) -> None:
        nodes = msgspec.json.decode(recorded(version, "nodes.json"))["nodes"]
        assert_the_nodes(tuple(node_record(node) for node in nodes))

    def test_accounting(self, version: str) -> None:
        """Totals are those allocated; times that have not come are None; no memory peak is not zero."""
        records = {record.job_id: record for record in read_accounting(recorded(version, "sacct.txt"))}
        names = by_name(
            tuple(job_record(job) for job in msgspec.json.decode(recorded(version, "squeue.json"))["jobs"])
        )
        failed = records[names["failed"].job_id]
        assert (failed.state, failed.exit_code, failed.gpus, failed.mem_mib) == ("FAILED", "3:0", 0, 8000)
        assert failed.ended_s is not None
        assert (failed.max_rss_mib, failed.consumed_energy_j) == (None, None)
        large = records[names["two-nodes"].job_id]
        assert (large.state, large.nodes, large.cpus, large.gpus) == ("RUNNING", 2, 32, 8)
        assert large.mem_mib == 200 * MIB
        assert large.ended_s is None
        assert (large.submitted_s, large.started_s) == (names["two-nodes"].submitted_s, names["two-nodes"].started_s)

    def test_configuration_and_partitions(self, version: str) -> None:
        """What scontrol alone shows: the version, the cluster, whether limits are enforced, partitions' limits."""
        config = Control(Prints(recorded(version, "config.txt"))).config()
        assert config.version.startswith(version)
        assert config.cluster
        assert not config.limits_enforced
        (gpu,) = Control(Prints(recorded(version, "partitions.txt"))).partitions().values()
        assert (gpu.name, gpu.max_time_s, gpu.max_nodes) == ("gpu", 24 * HOUR, None)


class TestStates:
    @pytest.mark.parametrize(
        ("words", "state"),
        [
            (["COMPLETED", "COMPLETING"], "COMPLETING"),
            (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "CONFIGURING"),
            (["PENDING", "REQUEUE_HOLD"], "REQUEUE_HOLD"),
            (["RUNNING", "STOPPED", "COMPLETING"], "COMPLETING"),
            (["PENDING"], "PENDING"),
            ([], "UNKNOWN"),
        ],
    )
    def test_a_flag_stands_before_the_base_state(self, words: list[str], state: str) -> None:
        """25.11 lists base state and flags; squeue, pyslurm and 22.05 show one word: Slurm's own order of them."""
        assert job_state(words) == state

    @pytest.mark.parametrize("words", [["idle"], ["MIXED", "PLANNED"], ["IDLE", "POWERED_DOWN"], ["allocated"]])
    def test_nodes_that_take_jobs(self, words: list[str]) -> None:
        assert is_usable(words)

    @pytest.mark.parametrize(
        "words",
        [
            *(["idle", "DRAIN"], ["DOWN", "NOT_RESPONDING"], ["IDLE", "MAINT", "RESERVED"], ["idle", "MAINTENANCE"]),
            *(["IDLE", "INVALID_REG"], ["UNKNOWN"], ["FUTURE"], ["MIXED", "FAIL"]),
        ],
    )
    def test_nodes_that_do_not(self, words: list[str]) -> None:
        assert not is_usable(words)


class TestTres:
    def test_counts_and_memory(self) -> None:
        tres = parse_tres("cpu=32,mem=62.50G,node=1,billing=8,gres/gpu=4,gres/gpu:a100=4,license/x=N/A")
        assert tres == {
            "cpu": 32.0,
            "mem": 64_000.0,
            "node": 1.0,
            "billing": 8.0,
            "gres/gpu": 4.0,
            "gres/gpu:a100": 4.0,
        }
        assert gpus_of(tres) == 4

    @pytest.mark.parametrize(
        ("text", "mib"), [("mem=512M", 512), ("mem=1.95T", 2_044_723), ("mem=1048576K", 1024), ("mem=40960", 40_960)]
    )
    def test_memory_in_whole_mib(self, text: str, mib: int) -> None:
        assert parse_tres(text)["mem"] == mib

    def test_types_alone_are_added_up(self) -> None:
        assert gpus_of(parse_tres("gres/gpu:a100=4,gres/gpu:h100=2,gres/gpumem=80G")) == 6

    def test_nothing(self) -> None:
        assert parse_tres("") == {}
        assert gpus_of({}) == 0
        assert gpu_type_of("", "cpu=4") == ""
        assert gpus_of_request("cpu=4") == 0

    @pytest.mark.parametrize(
        ("request_text", "gpu_type", "count"),
        [
            ("gres:gpu:4", "", 4),
            ("gres/gpu:4", "", 4),
            ("gres:gpu:a100:4", "a100", 4),
            ("gres/gpu:a100:4", "a100", 4),
            ("cpu=4,gres/gpu:a100=2", "a100", 2),
            ("gres/gpu:1080:2", "1080", 2),
            ("gres/gpu:3g.20gb:1", "3g.20gb", 1),
            ("gres:gpu", "", 1),
            ("gres/gpu:a100", "a100", 1),
            ("gres/gpumem:40", "", 0),
            ("gres/gpu:a100:2,gres/gpu:h100:1", "a100", 3),
        ],
    )
    def test_requests(self, request_text: str, gpu_type: str, count: int) -> None:
        assert (gpu_type_of(request_text), gpus_of_request(request_text)) == (gpu_type, count)

    def test_the_first_type_named_counts(self) -> None:
        assert gpu_type_of("gres/gpu:8", "", "cpu=4,gres/gpu:a100=1") == "a100"

    @pytest.mark.parametrize(("text", "mib"), [("5120K", 5.0), ("1.50G", 1536.0), ("1048576", 1.0), ("", None)])
    def test_sizes_of_sacct(self, text: str, mib: float | None) -> None:
        """Sacct prints bytes where it prints no unit (--noconvert)."""
        assert memory_mib(text) == mib


def test_gpus_a_node_count_on_every_node() -> None:
    """22.05 leaves one node in tres_req_str of --ntasks=4 --ntasks-per-node=2 --gpus-per-node=2 (seen on 22.05.8)."""
    job = {
        "job_id": 1,
        "job_state": "PENDING",
        "node_count": 2,
        "tasks": 4,
        "tres_per_node": "gres:gpu:2",
        "tres_req_str": "cpu=4,mem=32000M,node=1,billing=4,gres/gpu=2",
    }
    assert job_record(job).gpus == 4


def test_a_limit_of_infinity_is_none_that_counts() -> None:
    unlimited: list[object] = [None, {"set": False, "infinite": True, "number": 0}]
    for value in unlimited:
        assert job_record({"job_id": 1, "job_state": "PENDING", "time_limit": value}).time_limit_s == 0


@pytest.mark.parametrize(
    "text", ["", "slurm_load_jobs error", '{"errors": []}', '{"jobs": [{}]}', '{"jobs": 3}', "[]"]
)
def test_json_that_cannot_be_read_is_an_unexpected_answer(text: str) -> None:
    with pytest.raises(UnexpectedAnswer):
        JsonReader(Prints(text), "25.11.7").jobs()


class PrintsColumns(Commands):
    """A squeue that prints jobs in the columns that it is asked for, and JSON where it is asked for that."""

    def __init__(self, *jobs: dict[str, str], json: str = '{"jobs": []}', text: str = "") -> None:
        super().__init__(timeout_s=1)
        self.text = text
        self.jobs = jobs
        self.json = json
        self.asked: list[str] = []

    def run(self, *words: str) -> str:
        if "--json" in words:
            self.asked.append("json")
            return self.json
        self.asked.append("columns")
        columns = words[-1].removeprefix("--Format=").split(",")
        marks = [column.split(":")[1] for column in columns]
        return "".join("".join(map("".join, zip(job.values(), marks, strict=True))) + "\n" for job in self.jobs)

    def converse(self, *words: str, lines: Sequence[str]) -> str:
        self.asked += lines
        return self.text


SHOWN = (
    "JobId=7 JobName=llm UserId=llm-alice(1001) Reason=Resources NodeList=(null) NumNodes=2-4 NumCPUs=4 NumTasks=1 "
    "CPUs/Task=4 TRES=cpu=4,mem=8G,node=1 MinCPUsNode=4 MinMemoryCPU=8G MinTmpDiskNode=0 Comment=NumNodes=1-7 \n"
)


def columns_of_a_job(**changes: str) -> dict[str, str]:
    """What squeue 22.05 prints of a pending job of one node and one GPU."""
    return dict.fromkeys(_COLUMNS, "N/A") | {
        "job_id": "7",
        "name": "llm",
        "job_state": "PENDING",
        "state_reason": "Resources",
        "submit_time": "1000",
        "time_limit": "1-02:03:00",
        "priority": "12",
        "admin_comment": "(null)",
        "node_count": "1",
        "tasks": "1",
        "max_nodes": "1",
        "cpus": "4",
        "tres_req_str": "cpu=4,mem=8G,node=1,billing=4,gres/gpu=1",
        "tres_per_node": "gres:gpu:1",
        "batch_flag": "1",
        "minimum_memory": "8192M",
        "array_job_id": "7",
        "shared": "OK",
        **changes,
    }


class TestColumnsOfSqueue:
    def test_a_job(self) -> None:
        (job,) = SqueueReader(squeue := PrintsColumns(columns_of_a_job()), JsonReader(squeue, "22.05.8")).jobs()
        assert (job.job_id, job.gpus, job.cpus, job.mem_mib, job.time_limit_s) == (7, 1, 4, 8 * MIB, 93_780)
        assert (job.admin_comment, job.is_array, job.is_batch, job.is_exclusive) == ("", False, True, False)
        assert squeue.asked == ["columns"]

    @pytest.mark.parametrize("name", ["N/A", "two\nlines", "|0|", " 8 |x|PENDING", "käse"])
    def test_no_name_of_a_job_can_break_the_columns(self, name: str) -> None:
        squeue = PrintsColumns(columns_of_a_job(name=name), columns_of_a_job(job_id="8", array_job_id="8"))
        first, second = SqueueReader(squeue, JsonReader(squeue, "22.05.8")).jobs()
        assert (first.name, first.job_id, second.job_id) == (name, 7, 8)

    def test_columns_are_marked_anew_in_each_call(self) -> None:
        """Else a user who has seen squeue's command line could write the mark into a job's name."""
        asked = []

        class Listens(PrintsColumns):
            def run(self, *words: str) -> str:
                asked.append(words[-1])
                return super().run(*words)

        reader = SqueueReader(squeue := Listens(columns_of_a_job()), JsonReader(squeue, "22.05.8"))
        reader.jobs()
        reader.jobs()
        assert asked[0] != asked[1]

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ("RaisedSignal:9(Killed)", "RaisedSignal"),
            ("ReqNodeNotAvail, UnavailableNodes:n4", "ReqNodeNotAvail"),
            ("None", "None"),
        ],
    )
    def test_what_is_added_to_a_reason_is_left_out(self, said: str, reason: str) -> None:
        (job,) = SqueueReader(
            squeue := PrintsColumns(columns_of_a_job(state_reason=said)), JsonReader(squeue, "22.05.8")
        ).jobs()
        assert job.reason == reason

    def test_what_columns_leave_open_is_asked_for_once_of_jobs_that_may_be_ours(self) -> None:
        """Until a part of the request changes: priority and estimates do all the time."""
        ours = columns_of_a_job(admin_comment="ours", node_count="2", max_nodes="2")
        squeue = PrintsColumns(columns_of_a_job(job_id="8"), ours, text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, "22.05.8"))
        for priority in ("12", "12", "13"):
            squeue.jobs = (columns_of_a_job(job_id="8"), {**ours, "priority": priority})
            _, job = reader.jobs()
            assert (job.fields.max_nodes, job.fields.mem_mib_per_cpu, job.fields.mem_mib_per_node) == (4, 8192, 0)
        assert squeue.asked == ["columns", "show job 7", "columns", "columns"]
        squeue.jobs = ({**ours, "cpus": "8"},)
        reader.jobs()
        assert squeue.asked[4:] == ["columns", "show job 7"]

    def test_and_again_whenever_a_job_is_read_back(self) -> None:
        ours = columns_of_a_job(admin_comment="ours")
        squeue = PrintsColumns(ours, text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, "22.05.8"))
        assert reader.jobs()[0].fields.max_nodes == 4
        squeue.text = SHOWN.replace("2-4", "2-2")
        assert reader.read_back([7])[7].fields.max_nodes == 2
        assert reader.jobs()[0].fields.max_nodes == 2
        assert squeue.asked == ["columns", "show job 7", "columns", "show job 7", "columns"]

    @pytest.mark.parametrize(
        "name", ["x NumNodes=1-99 MinMemoryNode=1", "two\nlines", "JobId=7 JobName=llm NumNodes=1-9"]
    )
    def test_no_name_of_a_job_can_forge_what_is_shown(self, name: str) -> None:
        squeue = PrintsColumns(text=SHOWN.replace("JobName=llm", f"JobName={name}"))
        assert request_details(squeue, {7: name}) == {7: RequestDetails(max_nodes=4, mem_per_cpu=True)}

    def test_nor_what_is_shown_of_another_job(self) -> None:
        forged = "x\nJobId=7 JobName=llm  NumNodes=1-99 NumCPUs=4 MinMemoryNode=1 "
        squeue = PrintsColumns(text=SHOWN.replace("JobId=7 JobName=llm", f"JobId=6 JobName={forged}") + SHOWN)
        assert request_details(squeue, {6: forged, 7: "llm"}) == {6: RequestDetails(max_nodes=4, mem_per_cpu=True)}

    def test_a_job_that_left_before_it_was_shown_counts_as_its_columns_say(self) -> None:
        squeue = PrintsColumns(columns_of_a_job(admin_comment="ours"))
        (job,) = SqueueReader(squeue, JsonReader(squeue, "22.05.8")).jobs()
        assert (job.fields.max_nodes, job.fields.mem_mib_per_node) == (1, 8192)

    def test_many_at_once_are_read_from_the_json(self) -> None:
        """As when rlallocd starts while thousands wait."""
        ours = [columns_of_a_job(job_id=str(number), admin_comment="ours") for number in range(1, 200)]
        json = [{"job_id": number, "job_state": "PENDING", "max_nodes": 6} for number in range(1, 200)]
        squeue = PrintsColumns(*ours, json=msgspec.json.encode({"jobs": json}).decode())
        jobs = SqueueReader(squeue, JsonReader(squeue, "22.05.8")).jobs()
        assert {job.fields.max_nodes for job in jobs} == {6}
        assert squeue.asked == ["columns", "json"]

    def test_read_back_tells_only_what_was_asked_for(self) -> None:
        squeue = PrintsColumns(columns_of_a_job(), columns_of_a_job(job_id="8"), text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, "22.05.8"))
        assert set(reader.read_back([7, 9])) == {7}
        assert reader.read_back([]) == {}

    def test_a_squeue_without_these_columns_is_read_as_json(self) -> None:
        squeue = Prints('{"jobs": [{"job_id": 7, "job_state": "PENDING"}]}')
        (job,) = SqueueReader(squeue, JsonReader(squeue, "99.05.1")).jobs()
        assert job.job_id == 7


class TestAccountingText:
    @staticmethod
    def row(job_id: str, state: str = "COMPLETED", **values: str) -> str:
        fields = {
            "exit_code": "0:0",
            "submit": "1000",
            "eligible": "1001",
            "start": "1002",
            "end": "1003",
            "alloc": "billing=8,cpu=8,gres/gpu=2,mem=40960M,node=1",
            "rss": "",
            "energy": "",
            **values,
        }
        return "\x1f".join((job_id, state, *fields.values()))

    @pytest.mark.parametrize(
        ("said", "state"),
        [
            *(("CANCELLED by 1000", "CANCELLED"), ("CANCELLED", "CANCELLED"), ("OUT_OF_MEMORY", "OUT_OF_MEMORY")),
            *(("NODE_FAIL", "NODE_FAIL"), ("REQUEUED", "REQUEUED"), ("", "UNKNOWN")),
        ],
    )
    def test_odd_states(self, said: str, state: str) -> None:
        (record,) = read_accounting(self.row("7", said))
        assert record.state == state

    def test_peak_and_energy_are_the_largest_of_the_steps(self) -> None:
        rows = [
            self.row("7", energy="0"),
            self.row("7.batch", rss="5242880K", energy="90"),
            self.row("7.extern", rss="", energy=""),
            self.row("7.0", rss="10485760K", energy="4000"),
            self.row("8"),
        ]
        first, second = read_accounting("\n".join(rows) + "\n")
        assert (first.max_rss_mib, first.consumed_energy_j) == (10_240, 4000)
        assert (second.max_rss_mib, second.consumed_energy_j) == (None, None)

    def test_a_requeued_job_has_a_record_for_each_run(self) -> None:
        rows = [
            self.row("7", "REQUEUED"),
            self.row("7.batch", "CANCELLED", rss="1024K"),
            self.row("7", submit="2000"),
            self.row("7.batch", rss="2048K"),
        ]
        first, second = read_accounting("\n".join(rows))
        assert (first.submitted_s, first.max_rss_mib) == (1000, 1)
        assert (second.submitted_s, second.max_rss_mib) == (2000, 2)

    def test_a_job_that_never_started(self) -> None:
        (record,) = read_accounting(self.row("7", "CANCELLED by 0", start="None", end="Unknown", alloc=""))
        assert (record.started_s, record.ended_s, record.nodes, record.gpus, record.mem_mib) == (None, None, 0, 0, 0)

    def test_nothing(self) -> None:
        assert read_accounting("") == ()


class TestChoiceOfReader:
    """pyslurm where it matches slurmctld and works, else the commands; and why is said."""

    CONFIG = ControllerConfig(version="25.11.7", cluster="c", limits_enforced=False, gpus_accounted=True)

    @staticmethod
    def install(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
        """Make importlib.metadata say that this version of pyslurm is installed, or none."""

        def says(name: str) -> str:
            assert name == "pyslurm"
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(importlib.metadata, "version", says)

    @pytest.mark.parametrize(
        ("installed", "slurm", "why"),
        [
            (None, "25.11.7", "pyslurm is not installed"),
            ("25.11.2", "22.05.8", "pyslurm 25.11.2 does not match slurmctld 22.05.8"),
            ("25.11.2", "25.05.1", "pyslurm 25.11.2 does not match slurmctld 25.05.1"),
            ("22.5.1", "22.08.2", "pyslurm 22.5.1 does not match slurmctld 22.08.2"),
        ],
    )
    def test_no_pyslurm_or_another_version(
        self, monkeypatch: pytest.MonkeyPatch, installed: str | None, slurm: str, why: str
    ) -> None:
        self.install(monkeypatch, installed)
        config = msgspec.structs.replace(self.CONFIG, version=slurm)
        reader, said = _choose("auto", Commands(1), config)
        assert isinstance(reader, SqueueReader)
        assert said == why
        with pytest.raises(SlurmError, match=f"slurm.backend is pyslurm, but {why}; set it to auto or cli"):
            _choose("pyslurm", Commands(1), config)

    @pytest.mark.parametrize(("installed", "slurm"), [("25.11.2", "25.11.7"), ("22.5.1", "22.05.8")])
    def test_a_match_that_cannot_be_imported(
        self, monkeypatch: pytest.MonkeyPatch, installed: str, slurm: str
    ) -> None:
        """Versions are compared as numbers: pyslurm 22.5 is Slurm 22.05."""
        if importlib.util.find_spec("pyslurm") is not None:
            pytest.skip("pyslurm is installed here, so it can be imported")
        self.install(monkeypatch, installed)
        config = msgspec.structs.replace(self.CONFIG, version=slurm)
        reader, said = _choose("auto", Commands(1), config)
        assert isinstance(reader, SqueueReader)
        assert said == "pyslurm cannot be imported (No module named 'pyslurm')"
        with pytest.raises(SlurmError, match="cannot be imported"):
            _choose("pyslurm", Commands(1), config)

    def test_the_commands_on_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.install(monkeypatch, "25.11.2")
        reader, said = _choose("cli", Commands(1), self.CONFIG)
        assert isinstance(reader, SqueueReader)
        assert said == "slurm.backend is cli"


@pytest.fixture(scope="module")
def recorded_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of its own with the table's jobs, submitted and recorded by scripts/record-fixtures.sh."""
    try:
        check_requirements()
    except TestbedError as error:
        pytest.skip(str(error))
    with Site.start(SiteSpec(name=f"readers-{os.getpid()}")) as site:
        environment = {"INTO": str(tmp_path_factory.mktemp("recorded"))}
        script = [str(ROOT / "scripts" / "record-fixtures.sh"), "--submit-as", "llm-alice"]
        site.run(script, environment=environment, timeout_s=120)
        yield site


@pytest.fixture
def commands(recorded_site: Site, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Slurm's commands, pointed to that site."""
    monkeypatch.setenv("SLURM_CONF", str(recorded_site.etc / "slurm.conf"))
    monkeypatch.setenv("PATH", recorded_site.environment()["PATH"])
    return Commands(30)


@pytest.mark.slurm
class TestContract:
    """Every reader says the same of a real site's jobs and nodes."""

    def test_json_reader(self, commands: Commands) -> None:
        version = Control(commands).config().version
        reader = JsonReader(commands, version)
        assert_the_jobs(reader.jobs(), version)
        assert_the_nodes(reader.nodes())

    def test_squeue_reader(self, commands: Commands, recorded_site: Site) -> None:
        """Columns say what JSON says, also of forms that the table lacks, and say it again of unchanged rows."""
        for options in (
            ["--gpus=2", "--cpus-per-gpu=3", "--mem-per-cpu=100", "--job-name=two\nlines"],
            ["--gpus=2", "--cpus-per-gpu=3", "--mem-per-gpu=1G", "--time=UNLIMITED"],
            ["--nodes=1-4", "--gpus-per-node=1", "--mem-per-cpu=100", "--time=1-00:00:00"],
            ["--nodes=1", "--gres=gpu:1", "--exclusive=user", "--deadline=now+3hours", "--dependency=singleton"],
        ):
            job_id = recorded_site.sbatch("#!/bin/sh\ntrue\n", user="llm-alice", options=["--hold", *options])
            recorded_site.run(["scontrol", "update", f"JobId={job_id}", "AdminComment=perhaps ours"])
        version = Control(commands).config().version
        json_reader = JsonReader(commands, version)
        reader = SqueueReader(commands, json_reader)

        def differing() -> list[tuple[JobRecord | None, JobRecord]]:
            """Of all jobs what is not a field of the request; of pending ones, read back, those fields too."""
            expected = {job.job_id: job for job in json_reader.jobs() if job.state != "CANCELLED"}  # an earlier run's
            pending = [job_id for job_id, job in expected.items() if job.pending]
            said = {job.job_id: job for job in reader.jobs()}
            pairs = [(without_fields(said.get(job_id)), without_fields(job)) for job_id, job in expected.items()]
            said_again, expected_again = reader.read_back(pending), json_reader.read_back(pending)
            pairs += [(said_again.get(job_id), job) for job_id, job in expected_again.items()]
            return [(found, job) for found, job in pairs if found != job]

        try:
            for _ in range(2):
                # slurmctld goes on scheduling between two readings, so one moment's difference proves nothing.
                assert poll_until_empty(differing) == []
            assert reader.read_back([99_999]) == {}
            assert reader.nodes() == json_reader.nodes()
        finally:
            added = [
                str(job.job_id) for job in json_reader.jobs() if job.name not in {name.split()[0] for name in JOBS}
            ]
            recorded_site.run(["scancel", *added])

    def test_some_jobs_only(self, commands: Commands) -> None:
        reader = JsonReader(commands, Control(commands).config().version)
        wanted = sorted(job.job_id for job in reader.jobs() if job.name in ("plain", "held"))
        found = {job.job_id for job in reader.jobs_of(wanted)}
        assert found.issuperset(wanted)

    def test_pyslurm_reader(self, commands: Commands, recorded_site: Site) -> None:
        """In a process of its own: libslurm reads slurm.conf once, when pyslurm is imported."""
        version = Control(commands).config().version
        if (obstacle := _obstacle(recorded_site, version)) is not None:
            pytest.skip(obstacle)
        program = (
            "import msgspec, sys\n"
            "from rlallocd.slurm.commands import Commands\n"
            "from rlallocd.slurm.json_reader import JsonReader\n"
            "from rlallocd.slurm.pyslurm_reader import PyslurmReader\n"
            "reader = PyslurmReader(JsonReader(Commands(30), sys.argv[1]))\n"
            "sys.stdout.buffer.write(msgspec.json.encode((reader.jobs(), reader.nodes())))\n"
        )
        text = _in_site(recorded_site, program, version)
        jobs, nodes = msgspec.json.decode(text, type=tuple[tuple[JobRecord, ...], tuple[NodeRecord, ...]])
        assert_the_jobs(jobs, version)
        assert_the_nodes(nodes)
        json_reader = JsonReader(commands, version)
        assert {job.job_id: job for job in jobs} == {job.job_id: job for job in json_reader.jobs()}
        assert nodes == json_reader.nodes()


def _obstacle(site: Site, version: str) -> str | None:
    """Ask in another process, since importing pyslurm binds a process to one site."""
    program = "import sys; from rlallocd.slurm import connection; print(connection._pyslurm_obstacle(sys.argv[1]))"
    said = _in_site(site, program, version).strip()
    return None if said == "None" else said


def _in_site(site: Site, program: str, argument: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, argument],
        env=site.environment() | {"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
