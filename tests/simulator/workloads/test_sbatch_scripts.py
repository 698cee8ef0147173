"""A workload as scripts: what they ask of Slurm, and how long they sleep in the size that they got."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from rlalloc.job import Allocation
from rlalloc_simulator.workloads import Dependency, End, Header, Needs, Request, Speed, WorkloadError, WorkloadJob
from rlalloc_simulator.workloads.sbatch_scripts import ScriptSettings, write_scripts

JOB = WorkloadJob(
    id=7,
    submit_s=90.0,
    user="ada",
    request=Request(1, 4, 1, 32, 256_000, 7200, "a100"),
    needs=Needs(3600.0, 0.5, 64_000.0, Speed("bert", 0.9)),
    account="nlp",
    qos="high",
    job_class="train",
    directives="gpus=1-16",
    nice=5,
)
SETTINGS = ScriptSettings(compression=60.0)


def changed(**changes: object) -> WorkloadJob:
    return msgspec.structs.replace(JOB, **changes)


def written(folder: Path, *jobs: WorkloadJob, settings: ScriptSettings = SETTINGS) -> Path:
    assert write_scripts(folder / "scripts", Header(), jobs, settings) == len(jobs)
    return folder / "scripts"


def slept(script: Path, nodes: int, gpus: int, cpus: int) -> tuple[str, int]:
    """Run a script as in an allocation of that size; ``sleep`` and ``scancel`` only say that they were called."""
    tools = script.parent.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("sleep", "scancel"):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        tool.chmod(0o755)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "99",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_CPUS_ON_NODE": str(cpus),
        **({"SLURM_GPUS_ON_NODE": str(gpus)} if gpus else {}),
    }
    done = subprocess.run(["/bin/sh", str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout, done.returncode


def test_what_a_script_asks(tmp_path: Path) -> None:
    text = (written(tmp_path, JOB) / "job-7.sh").read_text()
    asked = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert asked == [
        "job-name=workload-7",
        "nodes=1",
        "ntasks-per-node=1",
        "cpus-per-task=32",
        "mem=256000M",
        "gpus-per-node=a100:4",
        "time=2",
        "output=/dev/null",
        "nice=5",
    ]
    assert "#RLALLOC gpus=1-16" in text


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"gpu_type": "1g.10gb"}, "gpus-per-node=1g.10gb:4"),
        ({"gpu_type": "", "shards": True}, "gres=shard:4"),
        ({"constraint": "ib&big"}, "constraint=ib&big"),
        ({"sockets_per_node": 2}, "sockets-per-node=2"),
        ({"cores_per_socket": 16}, "cores-per-socket=16"),
        ({"near_gpus": True}, "gres-flags=enforce-binding"),
    ],
)
def test_a_script_asks_for_slices_shards_features_and_sockets(
    tmp_path: Path, changes: dict[str, object], option: str
) -> None:
    request = msgspec.structs.replace(JOB.request, **changes)
    text = (written(tmp_path, msgspec.structs.replace(JOB, request=request)) / "job-7.sh").read_text()
    assert f"#SBATCH --{option}\n" in text


def test_names_are_kept_where_the_site_has_them(tmp_path: Path) -> None:
    folder = written(tmp_path, JOB, settings=ScriptSettings(keep=("account", "partition", "qos")))
    text = (folder / "job-7.sh").read_text()
    assert "--account=nlp" in text
    assert "--qos=high" in text
    assert "--partition" not in text
    with pytest.raises(WorkloadError, match="--keep user: write one of account, partition, qos"):
        write_scripts(tmp_path / "other", Header(), [JOB], ScriptSettings(keep=("user",)))


@pytest.mark.parametrize(("nodes", "gpus", "cpus"), [(1, 4, 32), (1, 1, 8), (1, 2, 4), (4, 4, 16), (1, 4, 8)])
def test_it_sleeps_as_the_speed_model_says(tmp_path: Path, nodes: int, gpus: int, cpus: int) -> None:
    """Whatever size it got, also with too few CPUs; to a hundredth of a second."""
    size = Allocation(nodes, gpus, 1, cpus, 1, 1)
    expected = 3600 / 60 * JOB.speed_curve.at(4, 8.0) / JOB.speed_curve.at(size.gpus, size.cpus_per_gpu)
    said, code = slept(written(tmp_path, JOB) / "job-7.sh", nodes, gpus, cpus)
    assert float(said.removeprefix("sleep ")) == pytest.approx(expected, abs=0.01)
    assert code == 0


@pytest.mark.parametrize(
    ("end", "said", "code"),
    [
        (End("FAILED", 900.0), "sleep 15.000\n", 1),
        (End("CANCELLED", 1800.0), "sleep 30.000\nscancel 99\nsleep 60\n", 0),
        (End("CANCELLED", 7200.0), "sleep 60.000\n", 0),
        (End("CANCELLED", 30.0, while_pending=True), "sleep 60.000\n", 0),
    ],
)
def test_it_ends_as_the_workload_says(tmp_path: Path, end: End, said: str, code: int) -> None:
    assert slept(written(tmp_path, changed(end=end)) / "job-7.sh", 1, 4, 32) == (said, code)


def test_a_job_without_gpus(tmp_path: Path) -> None:
    job = changed(request=Request(2, 0, 4, 2, 1000, 60), directives="", job_class=None)
    folder = written(tmp_path, job)
    assert "gpus-per-node" not in (folder / "job-7.sh").read_text()
    assert slept(folder / "job-7.sh", 2, 0, 8) == ("sleep 60.000\n", 0)


def test_submissions_come_in_time_and_in_slurms_numbers(tmp_path: Path) -> None:
    """Dependencies are translated, pending jobs are cancelled; sbatch is one that counts."""
    jobs = (
        changed(submit_s=0.0, directives=""),
        changed(id=9, submit_s=1.0, end=End("CANCELLED", 1.0, while_pending=True)),
        changed(id=12, submit_s=2.0, dependency=(Dependency("afterok", 7), Dependency("afterany", 9))),
    )
    folder = written(tmp_path, *jobs, settings=ScriptSettings(compression=1000.0))
    assert (folder / "submissions").read_text() == "0 7 - -\n1 9 - 1\n2 12 afterok:7,afterany:9 -\n"
    tools = tmp_path / "tools"
    tools.mkdir()
    calls = tmp_path / "calls"
    (tools / "sbatch").write_text(f'#!/bin/sh\necho "$*" >>{calls}\nwc -l <{calls} | sed "s/^/10/"\n')
    (tools / "scancel").write_text(f'#!/bin/sh\necho "scancel $*" >{tmp_path}/cancelled\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run([str(folder / "submit.sh"), "--qos=test"], env=environment, check=True)
    assert calls.read_text().splitlines() == [
        "--parsable --qos=test job-7.sh",
        "--parsable --qos=test job-9.sh",
        "--parsable --dependency=afterok:101,afterany:102 --qos=test job-12.sh",
    ]
    assert (folder / "job-ids").read_text() == "7 101\n9 102\n12 103\n"
    assert (tmp_path / "cancelled").read_text() == "scancel --state=PENDING 102\n"


def test_scripts_are_clean(tmp_path: Path) -> None:
    ends = (End(), End("FAILED", 1.0), End("CANCELLED", 1.0))
    folder = written(tmp_path, *(changed(id=number, end=end) for number, end in enumerate(ends, 1)))
    subprocess.run(["shellcheck", *map(str, folder.glob("*.sh"))], check=True)


def test_a_folder_in_use(tmp_path: Path) -> None:
    written(tmp_path, JOB)
    with pytest.raises(WorkloadError, match="is not empty: name a new folder"):
        write_scripts(tmp_path / "scripts", Header(), [JOB], SETTINGS)
