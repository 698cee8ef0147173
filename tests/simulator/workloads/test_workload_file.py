"""The file of a workload: what is written is read back; what is wrong is named."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from rlalloc.bounds import NodeShape
from rlalloc.speed import CURVES
from rlalloc_simulator.workloads import (
    End,
    Header,
    Needs,
    Request,
    Speed,
    WorkloadError,
    WorkloadJob,
    open_workload,
    read_workload,
    write_workload,
)
from tests.simulator.workloads.strategies import headers, workloads

HEADER = '{"format": "rlalloc-workload", "version": 1}'
JOB = {
    "id": 1,
    "submit_s": 0,
    "user": "ada",
    "class": "train",
    "request": {
        "nodes": 1,
        "gpus_per_node": 4,
        "tasks_per_node": 1,
        "cpus_per_task": 32,
        "mem_mib_per_node": 256000,
        "time_limit_s": 7200,
    },
    "needs": {"run_time_s": 3600, "cpu_fraction": 0.25, "max_rss_mib": 64000},
}


def workload(tmp_path: Path, *lines: object, header: str = HEADER) -> Path:
    path = tmp_path / "workload.jsonl"
    path.write_text("\n".join([header, *(json.dumps(line) for line in lines)]) + "\n")
    return path


def changed(key: str, value: object) -> dict[str, object]:
    """JOB with the value at ``a.b`` replaced."""
    job = json.loads(json.dumps(JOB))
    inner = job
    *way, last = key.split(".")
    for step in way:
        inner = inner[step]
    inner[last] = value
    return dict(job)


@given(headers(), workloads())
@settings(max_examples=40)
def test_round_trip(header: Header, jobs: list[WorkloadJob]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.jsonl"
        assert write_workload(path, header, jobs) == len(jobs)
        assert read_workload(path) == (header, jobs)
        again = Path(folder) / "again.jsonl"
        write_workload(again, *read_workload(path))
        assert again.read_bytes() == path.read_bytes()


def test_a_job_by_hand(tmp_path: Path) -> None:
    """The smallest job that a person would write; the rest has defaults."""
    _, (job,) = read_workload(workload(tmp_path, JOB))
    assert job.job_class == "train"
    assert job.end == End()
    assert job.gpu_s == 4 * 3600
    assert job.speed_curve.cpus_per_gpu_needed == 2.0
    assert job.speed_curve.speedup == CURVES["bert"].speedup
    assert job.bounds(NodeShape(gpus=8, cpus=64, mem_mib=512_000)).gpu_counts == (4,)


def test_jobs_come_as_they_are_asked_for(tmp_path: Path) -> None:
    """A fault further down does not keep the lines before it from being read."""
    with open_workload(workload(tmp_path, JOB, {"id": 2})) as (header, jobs):
        assert header.version == 1
        assert next(jobs).id == 1
        with pytest.raises(WorkloadError, match="line 3"):
            next(jobs)


@pytest.mark.parametrize(
    ("key", "value", "named", "found", "allowed"),
    [
        ("request.nodes", 0, "request.nodes", "0", "`int` >= 1"),
        ("request.mem_mib_per_node", "256G", "request.mem_mib_per_node", '"256G"', "`int`"),
        ("submit_s", -1, "submit_s", "-1", "`float` >= 0.0"),
        ("needs.run_time_s", 0, "needs.run_time_s", "0", "`float` > 0.0"),
        ("user", "ada lovelace", "user", '"ada lovelace"', "`str` matching regex"),
        ("dependency", [{"kind": "afterok", "job": 0}], "dependency.0.job", "0", "`int` >= 1"),
    ],
)
def test_an_error_names_line_key_found_and_allowed(
    tmp_path: Path, key: str, value: object, named: str, found: str, allowed: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_workload(workload(tmp_path, JOB, changed(key, value)))
    assert f"line 3, key {named}: found {found}, allowed: {allowed}" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("class", "pretrain", 'key class: found "pretrain", allowed: .*finetune'),
        ("end", {"state": "TIMEOUT", "after_s": 1}, 'key end.state: found "TIMEOUT", allowed: .*CANCELLED'),
    ],
)
def test_an_error_lists_the_words_that_are_allowed(tmp_path: Path, key: str, value: object, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read_workload(workload(tmp_path, changed(key, value)))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("end", {"state": "FAILED"}, "after_s is None: give it for FAILED"),
        ("end", {"state": "COMPLETED", "after_s": 3}, "only for them"),
        ("end", {"state": "FAILED", "after_s": 3, "while_pending": True}, "only a CANCELLED job"),
        ("directives", "gpus=8-1", "must not be above"),
        ("request.constraint", "a&b|c", "write features with & between them"),
        ("dependency", [{"kind": "afterok", "job": 1}], "name an id below its own"),
        ("surprise", 1, "unknown field `surprise`"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, key: str, value: object, words: str) -> None:
    with pytest.raises(WorkloadError, match=f"(?s)line 2.*{words}"):
        read_workload(workload(tmp_path, changed(key, value)))


@pytest.mark.parametrize(("key", "value", "allowed"), [("id", 1, "above 1"), ("submit_s", 5, "from 10.0 on")])
def test_the_order_is_kept(tmp_path: Path, key: str, value: object, allowed: str) -> None:
    second = changed("submit_s", 10) | {"id": 2} | {key: value}
    with pytest.raises(WorkloadError, match=f"line 3, key {key}: found {value}.*{allowed}"):
        read_workload(workload(tmp_path, changed("submit_s", 10), second))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "not a header"),
        ("[]", "not a header"),
        ('{"format": "swf"}', "found 'swf', allowed is 'rlalloc-workload'"),
        ('{"format": "rlalloc-workload", "version": 2}', "key version: found 2, allowed is 1"),
        ('{"format": "rlalloc-workload", "version": 1, "utc_offset_s": "east"}', "key utc_offset_s: found"),
    ],
)
def test_a_wrong_header(tmp_path: Path, header: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read_workload(workload(tmp_path, header=header))


def test_a_partition_of_unknown_nodes(tmp_path: Path) -> None:
    node = {"name": "n", "count": 2, "gpus": 8, "cpus": 96, "mem_mib": 1000}
    header = json.dumps(
        {
            "format": "rlalloc-workload",
            "version": 1,
            "cluster": {"nodes": [node], "partitions": [{"name": "llm", "nodes": ["m"]}]},
        }
    )
    with pytest.raises(WorkloadError, match="names nodes 'm': write one of n"):
        read_workload(workload(tmp_path, header=header))


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    """Structs made in Python are not checked by themselves; the old file stays."""
    path = workload(tmp_path, JOB)
    before = path.read_bytes()
    wrong = WorkloadJob(
        id=1,
        submit_s=0.0,
        user="ada",
        request=Request(0, 1, 1, 1, 1, 1),
        needs=Needs(float("nan"), 1.0, 1.0, Speed()),
    )
    with pytest.raises(WorkloadError, match=r"line 2, key request.nodes: found 0"):
        write_workload(path, Header(), [wrong])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file"):
        read_workload(tmp_path / "none.jsonl")
    with pytest.raises(WorkloadError, match="No such file"):
        write_workload(tmp_path / "no" / "folder.jsonl", Header(), [])


@pytest.mark.parametrize(
    ("end", "limit_s", "held_s"),
    [
        (End(), 7200, 3600.0),
        (End(), 1800, 1800.0),
        (End("FAILED", 60.0), 7200, 60.0),
        (End("CANCELLED", 5000.0), 7200, 3600.0),
        (End("CANCELLED", 60.0, while_pending=True), 7200, 0.0),
    ],
)
def test_how_long_a_job_holds_its_nodes(end: End, limit_s: int, held_s: float) -> None:
    job = WorkloadJob(
        id=1,
        submit_s=0.0,
        user="ada",
        request=Request(2, 8, 1, 8, 1000, limit_s),
        needs=Needs(3600.0, 0.5, 500.0),
        end=end,
    )
    assert job.held_s == held_s
    assert job.gpu_s == 16 * held_s
