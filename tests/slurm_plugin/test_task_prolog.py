"""The TaskProlog by itself: which lines it prints for which environment."""

import subprocess
from pathlib import Path

import pytest

from rlallocd.slurm.node_mark import TASK_PROLOG_VERSION

PROLOG = Path(__file__).parents[2] / "slurm_plugin" / "task_prolog"
RESIZED = {
    "RLALLOC_JOB": "1",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_CPUS_ON_NODE": "16",
    "SLURM_CPUS_PER_TASK": "8",
    "SLURM_MEM_PER_NODE": "65536",
}


def prolog(**environment: str) -> dict[str, str | None]:
    """Variables that it sets, or unsets (None)."""
    done = subprocess.run([PROLOG], env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str | None] = {}
    for line in done.stdout.splitlines():
        verb, _, rest = line.partition(" ")
        name, _, value = rest.partition("=")
        found[name] = value if verb == "export" else None
    return found


def test_stale_counts_are_set_from_the_right_ones() -> None:
    found = prolog(
        **RESIZED, SLURM_NTASKS="8", SLURM_NPROCS="8", SLURM_NTASKS_PER_NODE="4", SLURM_GPUS_PER_NODE="a100:4"
    )
    assert found["SLURM_NTASKS"] == found["SLURM_NPROCS"] == "4"
    assert found["SLURM_NTASKS_PER_NODE"] == "2"
    assert found["SLURM_GPUS_PER_NODE"] == "a100:2"
    assert found["RLALLOC_GPUS"] == "4"
    assert found["RLALLOC_MEM_MIB_PER_NODE"] == "65536"
    assert "SLURM_GPUS_PER_TASK" not in found


def test_what_was_not_set_is_not_made_up() -> None:
    found = prolog(**RESIZED)
    assert "SLURM_NTASKS" not in found
    assert "SLURM_GPUS" not in found
    assert "RLALLOC_TASKS_PER_NODE" not in found


def test_task_counts_that_only_an_update_added_go() -> None:
    """Launchers take SLURM_NTASKS for the user's own word."""
    found = prolog(**RESIZED, RLALLOC_NO_TASKS="1", SLURM_NTASKS="2", SLURM_NPROCS="2")
    assert (found["SLURM_NTASKS"], found["SLURM_NPROCS"], found["RLALLOC_NO_TASKS"]) == (None, None, None)
    assert "RLALLOC_TASKS_PER_NODE" not in found
    assert found["RLALLOC_CPUS_PER_TASK"] == "8"


@pytest.mark.parametrize("counted", ["0(x2)", "1,0"])
def test_a_node_whose_cpus_hold_no_whole_task_has_one(counted: str) -> None:
    """Slurm counts so after a user has set MinCPUsNode below the CPUs per task."""
    small = RESIZED | {"SLURM_TASKS_PER_NODE": counted, "SLURM_CPUS_ON_NODE": "1", "SLURM_CPUS_PER_TASK": "2"}
    found = prolog(**small, SLURM_GPUS_PER_NODE="a100:4")
    assert (found["RLALLOC_GPUS"], found["RLALLOC_CPUS_PER_TASK"]) == ("4", "1")
    assert found["SLURM_GPUS_PER_NODE"] == "a100:2"
    assert "RLALLOC_TASKS_PER_NODE" not in found


def test_bindings_of_gpus_to_tasks_follow_the_counts() -> None:
    """Else srun gives a task as many GPUs as each had in the request."""
    size = RESIZED | {"SLURM_GPUS_ON_NODE": "4"}
    tasks = {"SLURM_NTASKS": "4", "SLURM_TRES_BIND": "gres/gpu:per_task:1"}
    assert prolog(**size, **tasks)["SLURM_TRES_BIND"] == "gres/gpu:per_task:2"
    tasks["SLURM_TASKS_PER_NODE"] = "3(x2)"
    assert prolog(**size | tasks)["SLURM_TRES_BIND"] is None
    tasks |= {"SLURM_TASKS_PER_NODE": "8(x2)", "SLURM_TRES_BIND": "gres/gpu:single:1"}
    assert prolog(**size | tasks)["SLURM_TRES_BIND"] == "gres/gpu:single:2"
    tasks["SLURM_TRES_BIND"] = "gres/gpu:closest"
    assert "SLURM_TRES_BIND" not in prolog(**size | tasks)


@pytest.mark.parametrize(
    ("binding", "cpus", "expected"),
    [
        ("", "4", "cpu=4"),
        ("gres/gpu:per_task:1", "4", "cpu=4,gres/gpu=2"),
        ("gres/gpu:per_task:1", "", "gres/gpu=2"),
        ("gres/gpu:single:2", "", None),
    ],
)
def test_what_an_update_emptied_has_its_counts_again(binding: str, cpus: str, expected: str | None) -> None:
    """Slurm 25.05 and 25.11 leave SLURM_TRES_PER_TASK empty."""
    size = RESIZED | {"SLURM_GPUS_ON_NODE": "4", "SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": cpus}
    assert prolog(**size, SLURM_TRES_PER_TASK="", SLURM_TRES_BIND=binding)["SLURM_TRES_PER_TASK"] == expected


def test_what_an_update_emptied_goes_from_a_job_with_its_request_back() -> None:
    """Also from one without memory per node, in which nothing is repaired: `--gres=gpu:2` alone on Slurm 25.11."""
    size = RESIZED | {"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_CPU": "2000", "SLURM_TRES_PER_TASK": ""}
    assert prolog(**size)["SLURM_TRES_PER_TASK"] is None
    assert "SLURM_TRES_PER_TASK" not in prolog(**size | {"SLURM_TRES_PER_TASK": "cpu=8"})
    assert "SLURM_TRES_PER_TASK" not in prolog(**size, SLURM_STEP_ID="0")


@pytest.mark.parametrize(("stated", "expected"), [("16", "8"), ("8", None), ("4", None), ("all", None)])
def test_srun_asks_for_no_more_cpus_per_task_than_there_are(stated: str, expected: str | None) -> None:
    """From the shell or the job in which sbatch was called; srun takes it for its own --cpus-per-task."""
    assert prolog(**RESIZED, SRUN_CPUS_PER_TASK=stated).get("SRUN_CPUS_PER_TASK") == expected


@pytest.mark.parametrize(
    ("nodes", "cpus", "tasks", "expected"),
    [
        ("1", "6", "0", "6"),
        ("1", "7", "2", "3"),
        ("1", "1", "2", "1"),
        ("2", "11,6", "1(x2)", "6"),
        ("3", "14(x2),6", "2(x3)", "3"),
        ("1", "16", "2", None),
        ("2", "16,8", "2,1", None),
    ],
)
def test_no_srun_waits_for_more_cpus_than_a_user_has_left_to_each_node(
    nodes: str, cpus: str, tasks: str, expected: str | None
) -> None:
    """Its user set MinCPUsNode. All variables from which srun reads the CPUs per task have to agree."""
    count = {} if tasks == "0" else {"SLURM_NTASKS": "9"}
    size = {
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_CPUS_ON_NODE": cpus.partition(",")[0].partition("(")[0],
        "SLURM_JOB_CPUS_PER_NODE": cpus,
        "SLURM_TASKS_PER_NODE": tasks,
    }
    found = prolog(**RESIZED | size | count, SLURM_TRES_PER_TASK="cpu=2", SRUN_CPUS_PER_TASK="32")
    assert found.get("SLURM_CPUS_PER_TASK") == expected
    per_task = expected or "8"
    assert (found["RLALLOC_CPUS_PER_TASK"], found["SRUN_CPUS_PER_TASK"]) == (per_task, per_task)
    assert found["SLURM_TRES_PER_TASK"] == f"cpu={per_task}"


def test_no_cpus_per_task_are_made_up_where_the_nodes_differ() -> None:
    small = {name: value for name, value in RESIZED.items() if name != "SLURM_CPUS_PER_TASK"}
    assert "SLURM_CPUS_PER_TASK" not in prolog(**small | {"SLURM_JOB_CPUS_PER_NODE": "11,6"})


def test_only_marked_jobs_and_only_the_batch_step() -> None:
    assert prolog(**RESIZED | {"RLALLOC_JOB": "0"}) == {}
    assert prolog(**RESIZED, SLURM_STEP_ID="0") == {}
    assert prolog() == {}


OWN = "JobId=7 AdminComment=rlalloc:v=1;mode=enforce"
PLAN = ("RLALLOC_DP", "RLALLOC_TP", "RLALLOC_PP")


def planned(tmp_path: Path, record: str | None, **environment: str) -> list[str | None]:
    """The plan that it sets with a scontrol that prints ``record``, or fails; it stands alone in its folder."""
    answer = "exit 1" if record is None else f"cat <<'END'\n{record}\nEND"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "scontrol").chmod(0o755)
    found = prolog(**RESIZED | environment, PATH=f"{tmp_path}:/usr/bin:/bin")
    return [found.get(name, "none") for name in PLAN]


def test_a_job_of_which_no_model_is_known_has_data_parallelism_alone(tmp_path: Path) -> None:
    """Whatever the AdminComment says."""
    assert planned(tmp_path, "AdminComment=x rlalloc-plan:1x2x2") == ["4", "1", "1"]


def test_the_plan_of_the_admin_comment_is_set(tmp_path: Path) -> None:
    for record in (
        "JobId=7 AdminComment=rlalloc:v=1;mode=enforce rlalloc-decision:a-b rlalloc-plan:1x2x2 Comment=x",
        "JobId=7 AdminComment=rlalloc:v=1;mode=enforce;rlalloc-decision:a-b;rlalloc-plan:1x2x2 Comment=x",
    ):
        assert planned(tmp_path, record, RLALLOC_PLAN="1") == ["1", "2", "2"]
    assert prolog(**RESIZED, RLALLOC_PLAN="1")["RLALLOC_PLAN"] is None


def test_no_plan_is_set_that_is_not_for_these_gpus(tmp_path: Path) -> None:
    """The script's own defaults hold then: a plan of another size, of a wider node, none, or no answer."""
    for record in ("x rlalloc-plan:8x1x1 y", "x rlalloc-plan:1x4x1 y", "x rlalloc-plan:axbxc y", "JobId=7", None):
        assert planned(tmp_path, record, RLALLOC_PLAN="1") == ["none", "none", "none"]


@pytest.mark.parametrize(
    ("record", "gpus"),
    [
        ("JobId=7 TRES=cpu=96,mem=1G,node=2,billing=96,gres/gpu=6 SocksNode=*", "6"),
        ("JobId=7 ReqTRES=cpu=2,gres/gpu=2 AllocTRES=cpu=96,node=2,gres/gpu=6,gres/gpu:a100=6", "6"),
        ("JobId=7", "4"),
        (None, "4"),
    ],
    ids=["22.05", "24.11", "no sum", "no answer"],
)
def test_nodes_that_differ_in_their_gpus_are_summed_by_slurmctld(
    tmp_path: Path, record: str | None, gpus: str
) -> None:
    """Of a job that was not resized: with --exclusive, a node's own count says nothing of the others."""
    assert planned(tmp_path, record) == [gpus, "1", "1"]


def test_the_gpus_of_a_resized_job_are_alike_on_all_nodes(tmp_path: Path) -> None:
    """Whatever slurmctld counts."""
    assert planned(tmp_path, f"{OWN} rlalloc-decision:a TRES=gres/gpu=9", SLURM_GPUS="9") == ["4", "1", "1"]


def test_a_task_has_at_least_one_cpu() -> None:
    """With --overcommit there are more tasks than CPUs."""
    crowded = RESIZED | {"SLURM_CPUS_ON_NODE": "1", "SLURM_TASKS_PER_NODE": "4", "SLURM_NTASKS": "4"}
    del crowded["SLURM_CPUS_PER_TASK"]
    assert prolog(**crowded)["RLALLOC_CPUS_PER_TASK"] == "1"


def test_a_task_is_told_that_it_was_called() -> None:
    """`rlalloc doctor --nodes` asks; whatever else the task is."""
    assert prolog(RLALLOC_PROBE="1") == {"RLALLOC_PROBE": f"seen-{TASK_PROLOG_VERSION}"}
    assert prolog(RLALLOC_PROBE="0") == {}


ASKED_FOR = {"SLURM_GPUS": "4", "SLURM_NTASKS": "3", "SLURM_TRES_BIND": "gres/gpu:per_task:1", "RLALLOC_GPUS": "9"}


def with_record(tmp_path: Path, record: str | None, **environment: str) -> dict[str, str | None]:
    """What it changes with a scontrol that prints ``record``, or fails; uneven tasks on one node of 2 GPUs."""
    answer = "exit 1" if record is None else f"cat <<'END'\n{record}\nEND"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "scontrol").chmod(0o755)
    node = RESIZED | {"SLURM_JOB_NUM_NODES": "1", "SLURM_TASKS_PER_NODE": "3", "SLURM_JOB_ID": "7"}
    return prolog(**node | ASKED_FOR | environment, PATH=f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("memory", "decided", "mib"),
    [
        ({"NODE": "65536"}, "", "65536"),
        ({"CPU": "2000"}, "", "32000"),
        ({"GPU": "4000"}, "", "8000"),
        ({"CPU": "2000", "GPU": "4000"}, "", None),
        ({"NODE": "65536", "CPU": "2000"}, "", None),
        ({"NODE": "65536", "CPU": "2000"}, " rlalloc-decision:a", "65536"),
    ],
    ids=["node", "cpu", "gpu", "cpu and gpu", "node and cpu", "resized"],
)
def test_memory_is_told_where_slurm_says_it_in_one_way(
    tmp_path: Path, memory: dict[str, str], decided: str, mib: str | None
) -> None:
    """A job inside a job may have its own and that of the outer one."""
    said = {f"SLURM_MEM_PER_{name}": memory.get(name, "") for name in ("NODE", "CPU", "GPU")}
    assert with_record(tmp_path, f"{OWN}{decided}", **said).get("RLALLOC_MEM_MIB_PER_NODE") == mib


@pytest.mark.parametrize(
    "record",
    [
        f"{OWN} TresPerNode=gres:gpu:2",
        f"{OWN} rlalloc-decision:a TresPerJob=gres:gpu:4",
        f"{OWN} rlalloc-decision:a TresPerTask=cpu=2,gres/gpu:2",
    ],
    ids=["never changed", "has its request back", "has its request back, by task"],
)
def test_a_job_that_was_not_resized_keeps_what_sbatch_wrote(tmp_path: Path, record: str) -> None:
    found = with_record(tmp_path, record, SLURM_CPUS_PER_TASK="16")  # more than there are, by its user's update
    assert not {"SLURM_GPUS", "SLURM_NTASKS", "SLURM_TRES_BIND", "SLURM_CPUS_PER_TASK"} & set(found)
    assert found["RLALLOC_CPUS_PER_TASK"] == "16"
    assert (found["RLALLOC_GPUS"], found["SLURM_SET_BY_RLALLOC"]) == ("2", "7 ")


@pytest.mark.parametrize(
    "record",
    [
        f"{OWN} rlalloc-decision:a TresPerNode=gres:gpu:2 TresPerTask=cpu=2",
        f"{OWN};rlalloc-decision:a TresPerNode=gres:gpu:2 TresPerTask=cpu=2",
        "JobId=7 AdminComment=another's",
        None,
    ],
    ids=["resized", "resized, noted in the tag", "no tag of ours", "no answer"],
)
def test_a_job_that_may_be_resized_is_repaired(tmp_path: Path, record: str | None) -> None:
    """One that is, and keeps what sbatch wrote, would fail."""
    found = with_record(tmp_path, record)
    assert (found["SLURM_GPUS"], found["SLURM_TRES_BIND"]) == ("2", None)
    made = (found["SLURM_SET_BY_RLALLOC"] or "").split()
    assert made[0] == "7"
    assert {"SLURM_GPUS=2", "SLURM_NTASKS=3", "SLURM_MEM_PER_NODE=65536"} <= set(made)


INSIDE = {
    "SLURM_JOB_ID": "8",
    "SLURM_SET_BY_RLALLOC": "7 SLURM_GPUS=2 SLURM_NTASKS=3",
    "RLALLOC_GPUS": "2",
    "RLALLOC_RUNTIME_DIRECTORY": "/run/site",
    "SLURM_GPUS": "2",
    "SLURM_NTASKS": "5",
}


def test_a_job_from_inside_another_forgets_that_one() -> None:
    """Also one that is none of ours; what slurmd has set since is its own, and what is nobody's name stays."""
    leaked = " SLURM_GPUS=2 SLURM_NTASKS=3 LD_PRELOAD=x"
    found = prolog(**INSIDE, RLALLOC_LEAKED=leaked, LD_PRELOAD="x", PATH="/usr/bin:/bin")
    assert set(found.values()) == {None}
    assert {"RLALLOC_GPUS", "RLALLOC_DP", "RLALLOC_LEAKED", "SLURM_SET_BY_RLALLOC", "SLURM_GPUS"} <= set(found)
    assert not {"SLURM_NTASKS", "LD_PRELOAD", "RLALLOC_RUNTIME_DIRECTORY"} & set(found)
    assert "SLURM_GPUS" not in prolog(**INSIDE)  # what it asks for itself is not in the list


@pytest.mark.parametrize(
    ("record", "is_own"),
    [
        (f"{OWN} rlalloc-decision:a MinCPUsNode=16 MinMemoryNode=64G MinTmpDiskNode=0", True),
        (None, True),
        (f"{OWN} MinCPUsNode=16 MinMemoryNode=0 MinTmpDiskNode=0", False),
        (f"{OWN} MinCPUsNode=16 MinMemoryCPU=2000M MinTmpDiskNode=0", False),
    ],
    ids=["resized", "no answer", "all of a node", "per CPU"],
)
def test_a_job_keeps_memory_of_its_own_that_is_as_much_as_the_outer_jobs(
    tmp_path: Path, record: str | None, *, is_own: bool
) -> None:
    """A resized job without it would be taken for one that was not resized, and nothing would be repaired."""
    inside = {"SLURM_SET_BY_RLALLOC": "6 SLURM_MEM_PER_NODE=65536", "RLALLOC_LEAKED": " SLURM_MEM_PER_NODE=65536"}
    found = with_record(tmp_path, record, **inside)
    assert ("SLURM_MEM_PER_NODE" not in found) == is_own
    assert found.get("RLALLOC_MEM_MIB_PER_NODE") == ("65536" if is_own else None)
    assert found.get("SLURM_GPUS") == ("2" if is_own else None)


def test_steps_of_the_job_itself_forget_nothing() -> None:
    assert prolog(**INSIDE | {"SLURM_JOB_ID": "7"}, SLURM_STEP_ID="0") == {}
