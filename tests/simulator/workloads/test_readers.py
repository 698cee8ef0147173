"""Readers of published formats, on excerpts written by hand after each format's own documentation."""

import json
from pathlib import Path

import msgspec
import pytest

from rlalloc.history.sacct_rows import clock_s
from rlalloc.tres import parse_tres
from rlalloc_simulator.workloads import WorkloadError
from rlalloc_simulator.workloads.readers import FORMATS
from rlalloc_simulator.workloads.readers.sacct_log import COLUMNS
from rlalloc_simulator.workloads.readers.trace_tres import gpus_and_type
from rlalloc_simulator.workloads.trace_job import TraceJob, in_slower_time

RECORDED = Path(__file__).parent / "fixtures"
"""What sacct printed on one-machine sites: of 25.11 seven jobs, of 22.05 the same four as text and as JSON."""


def read(name: str, folder: Path, **files: str) -> list[TraceJob]:
    paths = []
    for file, text in files.items():
        path = folder / file.replace("__", ".")
        path.write_text(text)
        paths.append(path)
    return list(FORMATS[name].read(paths))


# sacct --parsable2, the columns in the reader's docstring; man sacct says what stands where.
SACCT = {
    "done": [
        (
            "11|ada|nlp|llm|normal|COMPLETED|1000|1060|4660|3600|120|2||"
            "billing=64,cpu=64,gres/gpu:a100=16,gres/gpu=16,mem=400G,node=2|"
            "billing=128,cpu=128,gres/gpu=16,mem=400G,node=2|2-08:00:00|"
        ),
        "11.batch|||||COMPLETED|1060|1060|4660|3600||1|1||cpu=64,mem=200G,node=1|00:10:00|2097152K",
        "11.extern|||||COMPLETED|1060|1060|4660|3600||2|2||cpu=128,mem=400G,node=2|00:00:00|9999999K",
        "11.0|||||COMPLETED|1060|1060|4660|3600||2|16||cpu=128,mem=400G,node=2|2-07:50:00|1048576K",
    ],
    "cancelled before it ran": [
        "12|bob|nlp|llm,long|normal|CANCELLED by 1000|2000|None|2600|0|UNLIMITED|1||cpu=4,mem=8G,node=1||00:00:00|"
    ],
    "running": ["13|bob|nlp|llm|normal|RUNNING|2100|2100|Unknown|60|60|1||cpu=4,mem=8G,node=1|cpu=4|00:00:00|"],
    "out of memory": [
        (
            "14|bob|nlp|llm|normal|OUT_OF_MEMORY|2200|2200|2230|30|60|1||cpu=4,gres/gpu=1,mem=8000M,node=1|"
            "cpu=4,gres/gpu=1,mem=8000M,node=1|00:30.500|"
        )
    ],
}
HEADER = "|".join(COLUMNS)


def sacct(*names: str, header: str = HEADER) -> str:
    return "\n".join([header, *(line for name in names for line in SACCT[name])]) + "\n"


def test_a_test_sites_jobs_in_the_time_that_they_stand_for(tmp_path: Path) -> None:
    done, cancelled, _ = read("sacct", tmp_path, sacct__txt=sacct(*SACCT))
    later, never = in_slower_time([done, cancelled], 60.0)
    assert (later.submit_s, later.elapsed_s, never.submit_s, never.ended_pending_s) == (
        1000,
        3600 * 60,
        61_000,
        36_000,
    )
    assert (later.time_limit_s, later.cpus_used, later.max_rss_mib) == (None, None, None)
    assert later.gpus == done.gpus


def test_sacct_text(tmp_path: Path) -> None:
    done, cancelled, killed = read("sacct", tmp_path, sacct__txt=sacct(*SACCT))
    assert done == TraceJob(
        key="11",
        submit_s=1000.0,
        gpus=16,
        elapsed_s=3600.0,
        state="COMPLETED",
        user="ada",
        account="nlp",
        partition="llm",
        qos="normal",
        nodes=2,
        tasks=16,
        cpus=64.0,
        mem_mib=400 * 1024.0,
        gpu_type="a100",
        time_limit_s=7200.0,
        cpus_used=56.0,
        max_rss_mib=16 * 1024.0,
    )
    assert (cancelled.ended_pending_s, cancelled.partition, cancelled.time_limit_s) == (600.0, "llm", None)
    assert (killed.state, killed.max_rss_mib) == ("OUT_OF_MEMORY", None)
    assert killed.cpus_used == pytest.approx(30.5 / 30)


def test_sacct_text_with_another_delimiter_and_local_times(tmp_path: Path) -> None:
    text = sacct("out of memory").replace("|2200|2200|", "|2026-01-31T12:00:00|2026-01-31T12:00:00|")
    (job,) = read("sacct", tmp_path, sacct__txt=text.replace("|", "\x1f"))
    assert job.submit_s % 86400 == 12 * 3600


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (sacct("done", header=HEADER.replace("|MaxRSS", "|Comment")), "column MaxRSS is missing"),
        (sacct("done").replace("|3600|120|", "|an hour|120|"), "line 2, key ElapsedRaw: found 'an hour'"),
        (sacct("done").replace("nlp", "n|lp"), "line 2: found 18 fields, allowed: 17"),
        (sacct("done").replace("COMPLETED", "EXPLODED"), "key State: found 'EXPLODED', allowed: one of COMPLETED"),
        (sacct("done").replace("|1000|", "|noon|"), "key Submit: found 'noon'"),
        ("", "an empty file"),
    ],
)
def test_wrong_sacct_text(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read("sacct", tmp_path, sacct__txt=text)


def test_sacct_json_as_recorded() -> None:
    """From a one-machine Slurm 25.11: of seven jobs two had ended."""
    done, failed = FORMATS["sacct-json"].read([RECORDED / "sacct-25.11.json"])
    assert (done.gpus, done.nodes, done.cpus, done.mem_mib) == (4, 1, 16.0, 102400.0)
    assert (done.time_limit_s, done.elapsed_s, done.state) == (3600.0, 2.0, "COMPLETED")
    assert (failed.state, failed.gpus, failed.elapsed_s) == ("FAILED", 1, 0.0)
    assert done.max_rss_mib is None  # no data is not zero


def test_sacct_as_recorded_says_the_same_as_text_and_as_json() -> None:
    """22.05: a job of two nodes and four tasks, one that failed, one cancelled in the queue, one still running."""
    texts = list(FORMATS["sacct"].read([RECORDED / "sacct-22.05.txt"]))
    for text, read_job in zip(texts, FORMATS["sacct-json"].read([RECORDED / "sacct-22.05.json"]), strict=True):
        assert msgspec.structs.replace(text, cpus_used=None) == msgspec.structs.replace(read_job, cpus_used=None)
        assert (text.cpus_used or 0) == pytest.approx(read_job.cpus_used or 0, abs=0.001)
    two, failed, gone = texts
    assert (two.gpus, two.nodes, two.tasks, two.cpus, two.mem_mib) == (8, 2, 4, 16.0, 20480.0)
    assert two.max_rss_mib == pytest.approx(4 * 3380 / 1024)
    assert (failed.state, failed.max_rss_mib) == ("FAILED", None)
    assert (gone.state, gone.ended_pending_s) == ("CANCELLED", 3.0)


def test_sacct_json_of_22_05(tmp_path: Path) -> None:
    """Plain numbers and one state; a typed GPU, and MaxRSS of a step with two tasks in bytes."""
    count = [{"type": "cpu", "name": None, "count": 8}, {"type": "gres", "name": "gpu:a100", "count": 2}]
    job = {
        "job_id": 5,
        "user": "ada",
        "account": "nlp",
        "partition": "llm",
        "qos": "normal",
        "allocation_nodes": 1,
        "state": {"current": "TIMEOUT", "reason": "None"},
        "time": {
            "submission": 100,
            "start": 110,
            "end": 170,
            "elapsed": 60,
            "limit": 1,
            "total": {"seconds": 90, "microseconds": 500000},
        },
        "tres": {"requested": count, "allocated": count},
        "steps": [
            {
                "step": {"name": "train"},
                "time": {"total": {"seconds": 90, "microseconds": 0}},
                "tasks": {"count": 2},
                "tres": {"requested": {"max": [{"type": "mem", "name": None, "count": 1024**3}]}},
            }
        ],
    }
    (read_job,) = read("sacct-json", tmp_path, sacct__json=json.dumps({"jobs": [job]}))
    assert (read_job.gpus, read_job.gpu_type, read_job.cpus) == (2, "a100", 8.0)
    assert (read_job.time_limit_s, read_job.max_rss_mib, read_job.tasks) == (60.0, 2048.0, 2)
    assert read_job.cpus_used == pytest.approx(90.5 / 60)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not JSON"), ("{}", "key jobs: found none"), ('{"jobs": [{}]}', r"job 1: not as sacct --json writes it")],
)
def test_wrong_sacct_json(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read("sacct-json", tmp_path, sacct__json=text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [("cpu=4,gres/gpu=2", (2, "")), ("gres/gpu:a100=2,gres/gpu:h100=1", (3, "")), ("gres/gpu:h100=4", (4, "h100"))],
)
def test_gpus_of_tres(text: str, gpus: tuple[int, str]) -> None:
    assert gpus_and_type(parse_tres(text)) == gpus


def test_sizes_and_times_of_sacct() -> None:
    assert parse_tres("mem=1.5G,billing=3,energy=x") == {"mem": 1536.0, "billing": 3.0}
    assert [clock_s(text) for text in ("01:30.5", "1:00:00", "2-00:00:01", "?")] == [90.5, 3600.0, 172801.0, None]


# Fields 1-18 of cs.huji.ac.il/labs/parallel/workload/swf.html, version 2.2.
SWF = """\
; UnixStartTime: 820454400
; MaxProcs: 128
  1    0  10 3600 64 1800.0 1024 64 7200 2048 1  3 4 -1 1 -1 -1 -1
  2  100  -1   -1 -1 -1     -1   32 3600 -1   5  3 4 -1 1 -1 -1 -1
  3  200   0  100 16 -1     -1   -1  600 -1   0 -1 4 -1 1 -1  1 30
  4  300   0   50 16 -1     -1   16  600 -1   2  3 4 -1 1 -1 -1 -1
"""


def test_swf(tmp_path: Path) -> None:
    """The part of a checkpointed job (status 2) is summed up in another line."""
    done, cancelled, failed = read("swf", tmp_path, log__swf=SWF)
    assert (done.submit_s, done.elapsed_s, done.gpus) == (820454400.0, 3600.0, 0)
    assert (done.cpus, done.mem_mib, done.time_limit_s) == (64.0, 128.0, 7200.0)
    assert (done.cpus_used, done.max_rss_mib) == (32.0, 64.0)
    assert (done.user, done.account, done.partition) == ("u3", "g4", "q1")
    assert (cancelled.state, cancelled.ended_pending_s, cancelled.cpus) == ("CANCELLED", 0.0, 32.0)
    assert (failed.state, failed.cpus, failed.user, failed.after) == ("FAILED", 16.0, "", ("1",))
    assert FORMATS["swf"].time_zero_s(done.submit_s) == 820454400.0
    assert FORMATS["swf"].time_zero_s(0.0) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 0 0", "line 1: found 3 fields, allowed: 18"),
        ("1 x 10 3600 64 -1 -1 64 7200 -1 1 3 4 -1 1 -1 -1 -1", "key submit_time: found 'x'"),
        ("1 0 10 3600 64 -1 -1 64 7200 -1 9 3 4 -1 1 -1 -1 -1", "key status: found '9', allowed: -1 to 5"),
    ],
)
def test_wrong_swf(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read("swf", tmp_path, log__swf=line)


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    detail = [{"ip": f"m{number}", "gpus": ["gpu0"] * count} for number, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly(**changes: object) -> dict[str, object]:
    """The example of msr-fiddle/philly-traces' README, shortened."""
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1506638472019_14199",
        "attempts": [
            attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
            attempt("2017-10-07 01:13:30", "2017-10-09 06:53:12", 8),
        ],
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
    } | changes


def test_philly(tmp_path: Path) -> None:
    """Attempts add up; what was still running, never tried or lost is left out."""
    jobs = [
        philly(),
        philly(status="Killed", user=None, attempts=[attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 8, 4)]),
        philly(attempts=[attempt("2017-10-07 01:12:00", None, 8)]),
        philly(attempts=[]),
        philly(submitted_time="None"),
    ]
    done, killed = read("philly", tmp_path, cluster_job_log=json.dumps(jobs))
    assert (done.gpus, done.state, done.account, done.user) == (8, "COMPLETED", "ee9e8c", "ce2f4c")
    assert done.elapsed_s == 74 + (2 * 86400 + 5 * 3600 + 39 * 60 + 42)
    assert done.submit_s % 86400 == 1 * 3600 + 11 * 60 + 39
    assert (killed.gpus, killed.state, killed.user, killed.elapsed_s) == (12, "CANCELLED", "", 60.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timestamp,duration", "not Philly's cluster_job_log.*philly-csv"),
        (json.dumps([philly(status="Lost")]), "job 1, key status: found 'Lost', allowed: Pass, Failed, Killed"),
        (json.dumps([philly(submitted_time="noon")]), "key submitted_time: found 'noon'"),
    ],
)
def test_wrong_philly(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read("philly", tmp_path, cluster_job_log=text)


def test_philly_csv(tmp_path: Path) -> None:
    """Columns of petuum/adaptdl's preparation; its last line is empty."""
    table = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,2,132.0,11cb48\n\n"
    (job,) = read("philly-csv", tmp_path, philly__csv=table)
    assert (job.gpus, job.elapsed_s, job.account, job.state) == (2, 66.0, "11cb48", "UNKNOWN")
    assert job.submit_s % 86400 == 7 * 3600 + 115


# The example rows of HeliosData's README, and one of a job that was cancelled in the queue.
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,16,64,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425514,uVMrF,vchbv,16,64,2,CANCELLED,2020-06-09 18:41:30,,2020-06-09 18:42:30,0,60
"""


def test_helios(tmp_path: Path) -> None:
    done, failed, cancelled = read("helios", tmp_path, cluster_log__csv=HELIOS)
    assert (done.user, done.account, done.gpus, done.cpus, done.nodes) == ("uXBbc", "vcJkd", 1, 1.0, 1)
    assert (failed.state, failed.elapsed_s, failed.nodes) == ("FAILED", 249.0, 2)
    assert done.submit_s % 86400 == 18 * 3600 + 41 * 60 + 1
    assert cancelled.ended_pending_s == 60.0


def table(**columns: object) -> str:
    """A table of one row."""
    return ",".join(columns) + "\n" + ",".join(map(str, columns.values())) + "\n"


# The example rows of AcmeTrace's README.
SEREN = table(
    job_id="5778432",
    user="u5907",
    node_num=1,
    gpu_num=8,
    cpu_num=128,
    type="Other",
    state="FAILED",
    submit_time="2023-03-01 00:18:22+08:00",
    start_time="2023-03-01 00:18:54+08:00",
    end_time="2023-03-01 00:20:51+08:00",
    duration=117,
    queue=32,
    gpu_time=936.0,
)
KALOS = table(
    job_id="dlc1t2ypl09b8qtp",
    user="uf794",
    node_num=8,
    gpu_num=64,
    cpu_num=960,
    mem_per_pod_GB=1000,
    shared_mem_per_pod=100.0,
    type="Pretrain",
    state="CANCELLED",
    submit_time="2023-05-17 11:28:42+00:00",
    start_time="2023-05-17 11:28:54+00:00",
    end_time="2023-05-17 11:30:04+00:00",
    fail_time="",
    stop_time="2023-05-17 11:30:04+00:00",
    duration=82,
    queue=12.0,
    gpu_time=5248.0,
)


def test_acme(tmp_path: Path) -> None:
    """Both clusters stand in China: Kalos' times are in UTC, Seren's are not."""
    (seren,) = read("acme", tmp_path, trace_seren__csv=SEREN)
    (kalos,) = read("acme", tmp_path, trace_kalos__csv=KALOS)
    assert (seren.gpus, seren.cpus, seren.mem_mib, seren.job_class) == (8, 128.0, None, None)
    assert (seren.name, seren.state, seren.elapsed_s) == ("Other", "FAILED", 117.0)
    assert seren.submit_s % 86400 == 18 * 60 + 22
    assert (kalos.nodes, kalos.gpus, kalos.mem_mib, kalos.job_class) == (8, 64, 8 * 1000 * 1024.0, "train")
    assert (kalos.state, kalos.ended_pending_s) == ("CANCELLED", None)
    assert kalos.submit_s % 86400 == 19 * 3600 + 28 * 60 + 42


def test_acme_converted(tmp_path: Path) -> None:
    table = (
        "job_id,arrival_time,num_iteration,iteration_computing_time,iteration_networking_time,gpu_workers,ps,"
        "gpu_per_worker,cpu_per_gpu_worker,cpu_per_ps_worker,tensorsizes,profiled_network\n"
        "0,313.0,156,0.5,0.25,8,0,8.0,15.0,15.0,10.0,500\n"
    )
    (job,) = read("acme-converted", tmp_path, kalos__csv=table)
    assert (job.submit_s, job.elapsed_s, job.nodes, job.gpus, job.cpus) == (313.0, 78.0, 8, 64, 960.0)
    assert FORMATS["acme-converted"].time_zero_s(313.0) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("COMPLETED", "SUCCESS", "line 2, key state: found 'SUCCESS', allowed: COMPLETED"),
        (",16,64,2,FAILED", ",many,64,2,FAILED", "line 3, key gpu_num: found 'many', allowed: a number"),
        (",16,64,2,FAILED", ",1.5,64,2,FAILED", "line 3, key gpu_num: found '1.5', allowed: a whole number"),
        ("2020-06-09 18:41:01,", "June,", "line 2, key submit_time: found 'June'"),
        ("vc,", "cluster,", "column vc is missing"),
    ],
)
def test_wrong_helios(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        read("helios", tmp_path, cluster_log__csv=HELIOS.replace(old, new, 1))


# Columns of alibaba/clusterdata's pai_*.header; the tables themselves have no header line.
PAI = {
    "pai_job_table__csv": "j1,i1,u1,Terminated,1000,5000\nj2,i2,u2,Running,1000,\nj3,i3,u2,Failed,2000.0,2100.0\n",
    "pai_task_table__csv": (
        "j1,ps,1.0,Terminated,1100.0,5000.0,600.0,29.0,,\n"
        "j1,worker,3.0,Terminated,1200.0,5000.0,400.0,10.0,50.0,V100\n"
        "j2,worker,1.0,Running,1200.0,,400.0,10.0,100.0,T4\n"
        "j3,worker,16.0,Failed,2050.0,2100.0,400.0,10.0,100.0,MISC\n"
    ),
}
SENSORS = """\
j1,worker,w1,i1,m1,/dev/nvidia0,140.0,16.0,1.4,2.0,1.2,2.4,1,1,1,1
j1,worker,w2,i1,m1,/dev/nvidia1,60.0,16.0,1.4,3.0,1.2,2.4,1,1,1,1
"""


def test_pai(tmp_path: Path) -> None:
    """Tasks and their instances become one job; parts of GPUs are rounded up; the clock is UTC+8."""
    done, failed = read("pai", tmp_path, **PAI, pai_sensor_table__csv=SENSORS)
    assert (done.gpus, done.cpus, done.mem_mib, done.gpu_type) == (2, 18.0, 59 * 1024.0, "V100")
    assert (done.submit_s, done.elapsed_s, done.user) == (1000.0 + 8 * 3600, 3900.0, "u1")
    assert (done.cpus_used, done.max_rss_mib) == (2.0, 5 * 1024.0)
    assert (failed.gpus, failed.nodes, failed.state, failed.gpu_type) == (16, 2, "FAILED", "")
    assert failed.cpus_used is None


def test_pai_needs_its_tables(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"pai_task_table.csv is missing"):
        read("pai", tmp_path, pai_job_table__csv=PAI["pai_job_table__csv"])
    with pytest.raises(WorkloadError, match=r"not one of pai_job_table.csv"):
        read("pai", tmp_path, jobs__csv="")
    wrong = PAI | {"pai_job_table__csv": "j1,i1,u1,Done,1000.0,5000.0\n"}
    with pytest.raises(WorkloadError, match="key status: found 'Done'"):
        read("pai", tmp_path, **wrong)


# After the sample in cluster-trace-gpu-v2023's README.
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-17,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437500
pod-22,4000,15258,1,220,V100M32,LS,Running,9679175,9973826,9679175
pod-35,16000,32768,1,1000,V100M16|V100M32,BE,Pending,9967058,9968575,
"""


def test_gpu_v2023(tmp_path: Path) -> None:
    done, ended, waited = read("gpu-v2023", tmp_path, pods__csv=PODS)
    assert (done.gpus, done.cpus, done.mem_mib, done.state) == (8, 88.0, 327680.0, "COMPLETED")
    assert done.elapsed_s == 10769854 - 9437500
    assert (ended.state, ended.job_class, ended.gpu_type) == ("CANCELLED", "serve", "V100M32")
    assert (waited.ended_pending_s, waited.elapsed_s, waited.gpu_type) == (1517.0, 0.0, "")


def test_a_phase_that_no_pod_has(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="line 2, key pod_phase: found 'Evicted', allowed: Succeeded"):
        read("gpu-v2023", tmp_path, pods__csv=PODS.replace("Succeeded", "Evicted"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    paths = [tmp_path / "pai_job_table.csv", tmp_path / "pai_task_table.csv"]
    with pytest.raises(WorkloadError, match=r"pai_(job|task)_table.csv: No such file"):
        list(FORMATS[name].read(paths))


def test_documentation_lists_every_format() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "workloads.md").read_text()
    for name in FORMATS:
        assert f"| `{name}` |" in text
