"""The plugin and the TaskProlog on a real slurmctld, jobs as an ordinary user, without the daemon.

All jobs are submitted at once and looked at by each test: a site and its jobs take longer than all the tests.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from rlallocd.slurm.generations import capabilities_of
from rlallocd.submissions.intercept import INTERCEPT_HEADER
from rlallocd.submissions.job_tag import read_tag
from slurm_testbed import MissingSoftwareError, NotPermittedError, Site, SiteSpec, TestbedError
from slurm_testbed.layout import DEFAULT_ROOT
from slurm_testbed.requirements import check_requirements

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slurm
PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
USER = "llm-alice"
GRACE_S = 5
LONG_GRACE_S = 600
ENDED = {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"}

# Writes what the job sees, and what its steps see, each task a line.
SCRIPT = """#!/bin/bash
#RLALLOC gpus=1-16 cpus-per-gpu=1-8
env > "$HOME/$SLURM_JOB_ID.environment"
srun sh -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NNODES gpus $CUDA_VISIBLE_DEVICES"' \
    > "$HOME/$SLURM_JOB_ID.tasks" 2>&1
: torchrun train.py
"""
ORDINARY_WITH_A_STEP = SCRIPT.replace("torchrun", "make").replace("#RLALLOC", "#")
ORDINARY = '#!/bin/sh\nenv > "$HOME/$SLURM_JOB_ID.environment"\n# torchrun\n'


# Submits jobs of its own, which inherit all of its environment, or what --export=NONE leaves of it.
OUTER = (
    SCRIPT
    + """
cd "$HOME"
for name in ordinary ours; do
    sbatch --parsable --time=5 -N1 --gres=gpu:1 --mem-per-cpu=300 $name.sh > from-inside-$name.id
    sbatch --parsable --time=5 --export=NONE -n1 --gpus=1 --mem=400 $name.sh > bare-$name.id
done
"""
)
INNER = {"from-inside": "-N1 --gres=gpu:1 --mem-per-cpu=300", "bare": "--export=NONE -n1 --gpus=1 --mem=400"}


class Size(NamedTuple):
    """An allocation in the words of the absolute message (SLURM-FORMS.md)."""

    nodes: int
    tasks: int
    cpus: int
    gpus: int
    mem_mib: int = 4000
    gpu_type: str = ""

    def update(self) -> list[str]:
        kind = f"{self.gpu_type}:" if self.gpu_type else ""
        return [
            f"NumNodes={self.nodes}-{self.nodes}",
            f"NumTasks={self.nodes * self.tasks}",
            f"TasksPerNode={self.tasks}",
            f"CPUsPerTask={self.cpus}",
            f"NumCPUs={self.nodes * self.tasks * self.cpus}",
            f"MinCPUsNode={self.tasks * self.cpus}",
            f"MinMemoryNode={self.mem_mib}",
            f"TresPerNode=gres:gpu:{kind}{self.gpus}",
            *("TresPerJob=", "TresPerTask=", "TresPerSocket=", "CpusPerTres=", "MemPerTres="),
            "StartTime=now",
        ]


# What is asked for, and the size that root gives it while it waits.
RESIZED: dict[str, tuple[str, Size]] = {
    "fewer GPUs on one node": ("-N1 --gres=gpu:8 --mem=8000", Size(1, 1, 4, 2)),
    "fewer GPUs, typed": ("-N1 --gpus-per-node=a100:4", Size(1, 1, 2, 1, gpu_type="a100")),
    "two nodes to one": ("-N2 --gpus-per-node=4 --ntasks-per-node=1 -c 4 --mem=8000", Size(1, 1, 4, 4)),
    "more GPUs": ("-N1 --gpus=2 -c 2", Size(1, 1, 4, 8)),
    "more nodes": ("-N1 --gres=gpu:8 --ntasks-per-node=1", Size(2, 1, 2, 8)),
    "a task a GPU": ("-N1 --gres=gpu:4 --ntasks-per-node=4 -c 1 --mem-per-cpu=500", Size(1, 2, 2, 2)),
    "a task a GPU, by task": ("-n 4 --gpus-per-task=1", Size(1, 2, 1, 2)),
    "one task for all GPUs": ("-n 4 --gpus-per-task=1", Size(1, 1, 2, 2)),
    "a task a GPU, by GPU": ("--gpus=4 --ntasks-per-gpu=1", Size(2, 1, 1, 1)),
    "all per GPU": ("-N1 --gpus=4 --cpus-per-gpu=2 --mem-per-gpu=500", Size(1, 1, 3, 2)),
}
# As submitted: the TaskProlog must leave their environments as they are.
UNCHANGED = {
    "two nodes": "-N2 --gpus-per-node=2 --ntasks-per-node=1 -c 2 --mem=4000",
    "memory per CPU": "-N1 --gres=gpu:2 -c 2 --mem-per-cpu=500",
    "all per GPU": "-N1 --gpus=2 --cpus-per-gpu=2 --mem-per-gpu=500",
    "tasks by GPU": "-n 2 --ntasks-per-gpu=1",
    "uneven": "-N2 --gpus=3",
    "uneven, with memory": "-N2 --gpus=3 --mem=4000",
    "a binding that does not come out even": "-N1 --gpus=4 -n 3 --gpu-bind=per_task:1 --mem=4000",
    "fewer GPUs than asked for": "-N1 --gpus=4 --gpus-per-task=2 -c 2 --mem=4000",  # an oddity of Slurm 22.05
}
REFUSED_LATER = "fewer GPUs than asked for"
UNTOUCHED = {
    "ordinary": (ORDINARY, "--gres=gpu:1"),
    "no GPUs": (SCRIPT, "-n 1"),
}


class Jobs:
    """The site, its intercept file, and the jobs by name."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.runtime = site.run_directory / "rlalloc"
        self.runtime.mkdir()
        self.capabilities = capabilities_of(site.run(["sinfo", "--version"]).split()[-1])
        self.ids: dict[str, int] = {}
        self.at_submission: dict[str, dict[str, str]] = {}

    def intercept(self, grace_s: int = GRACE_S, expires_in_s: int = 3600, mode: str = "enforce") -> None:
        lines = [
            INTERCEPT_HEADER,
            f"expires {int(time.time()) + expires_in_s}",
            "uptime 9999999999",
            f"grace {grace_s}",
            *(f"skip {form}" for form in self.capabilities.skipped_forms),
            "class train torchrun",
            "rule cpu off partitions=cpu accounts=* classes=train",
            f"rule llm {mode} partitions=gpu accounts=llm classes=train",
        ]
        aside = self.runtime / "intercept.new"
        aside.write_text("\n".join([*lines, ""]))
        aside.replace(self.runtime / "intercept")

    def submit(self, name: str, script: str, options: str) -> int:
        job_id = self.site.sbatch(script, user=USER, options=["--time=5", *options.split()])
        self.ids[name] = job_id
        self.at_submission[name] = self.show(name)
        return job_id

    def show(self, name: str) -> dict[str, str]:
        """A job's fields; of an array, those of its first line."""
        text = self.site.run(["scontrol", "show", "job", "--oneliner", str(self.ids[name])]).splitlines()[0]
        fields = dict(re.findall(r"(?:^| )(\w+)=(.*?)(?= \w+(?:[:/]\w+)*=|$)", text))
        comment = re.search(r" AdminComment=(.*?) (?=OverSubscribe=|StdErr=)", text + " OverSubscribe=")
        fields["AdminComment"] = comment[1].strip() if comment else ""
        return {"TRES": fields.get("AllocTRES", ""), **fields}  # 22.05 has TRES alone

    def is_accepted(self, name: str) -> bool:
        """Whether this version of Slurm accepts such a job at all."""
        return name != REFUSED_LATER or self.capabilities.release == "22.05"

    def skip_where_skipped(self, options: str) -> None:
        """Where an update would break a form of submission, the plugin leaves such jobs alone."""
        for form in self.capabilities.skipped_forms:
            if f"--{form}" in options:
                pytest.skip(f"updates break --{form} in Slurm {self.capabilities.release}, so the plugin skips it")

    def resize(self, name: str, size: Size) -> None:
        """Change a pending job as rlallocd does, with its note."""
        comment = f"AdminComment={self.at_submission[name]['AdminComment']} rlalloc-decision:test"
        self.site.run(["scontrol", "update", f"job={self.ids[name]}", comment, *size.update()])

    def environment(self, name: str) -> dict[str, str]:
        text = (self.site.home(USER) / f"{self.ids[name]}.environment").read_text()
        return dict(line.partition("=")[::2] for line in text.splitlines() if re.match("(SLURM|RLALLOC)_", line))

    def tasks(self, name: str) -> list[str]:
        return sorted((self.site.home(USER) / f"{self.ids[name]}.tasks").read_text().splitlines())


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    """Every job of this file, submitted, resized where it is to be, and ended where it can end."""
    try:
        check_requirements()
    except (MissingSoftwareError, NotPermittedError) as error:
        pytest.skip(str(error))
    name = f"plugin-{os.getpid()}"
    spec = SiteSpec(
        name=name,
        nodes=3,
        job_submit_lua=PLUGIN / "job_submit.lua",
        etc_files={"rlalloc.lua": PLUGIN / "rlalloc.lua"},
        task_prolog=PLUGIN / "task_prolog",
        slurmctld_environment={"RLALLOC_RUNTIME_DIRECTORY": f"{DEFAULT_ROOT.resolve()}/{name}/run/rlalloc"},
    )
    with Site.start(spec, replace=True) as site:
        jobs = Jobs(site)
        submit_all(jobs)
        lasting = {"held", "begins tomorrow"}
        site.wait_for_states(
            [job_id for name, job_id in jobs.ids.items() if name not in lasting], ENDED, timeout_s=180
        )
        yield jobs


def submit_all(jobs: Jobs) -> None:
    unchanged = {name: options for name, options in UNCHANGED.items() if jobs.is_accepted(name)}
    for name, options in unchanged.items():
        jobs.submit(f"control: {name}", SCRIPT, options)
    jobs.intercept(expires_in_s=-1)
    jobs.submit("expired", SCRIPT, "--gres=gpu:1")
    jobs.intercept(mode="shadow")
    jobs.submit("shadow", SCRIPT, "--gres=gpu:1")
    jobs.intercept()
    jobs.submit("deferred", SCRIPT, "--gres=gpu:1")
    jobs.submit("begins tomorrow", SCRIPT, "--gres=gpu:1 --begin=now+1day")
    jobs.submit("held", SCRIPT, "--gres=gpu:1 --hold")
    for name, options in unchanged.items():
        jobs.submit(f"marked: {name}", SCRIPT, options)
    for name, (script, options) in UNTOUCHED.items():
        jobs.submit(name, script, options)
    jobs.intercept(grace_s=LONG_GRACE_S)
    for name, (options, size) in RESIZED.items():
        jobs.submit(name, SCRIPT, options)
        jobs.resize(name, size)
    submit_from_inside(jobs)


def submit_from_inside(jobs: Jobs) -> None:
    """Jobs from inside one that is resized, and the same jobs from outside."""
    home = jobs.site.home(USER)
    texts = {"ordinary": ORDINARY_WITH_A_STEP, "ours": SCRIPT}
    # --export=NONE leaves neither, and holds for srun, too.
    exports = f"export SLURM_EXPORT_ENV=ALL HOME={home} PATH={jobs.site.environment()['PATH']}"
    scripts = {kind: text.replace("\nenv", f"\n{exports}\nenv") for kind, text in texts.items()}
    for kind, script in scripts.items():
        (home / f"{kind}.sh").write_text(script)
    jobs.submit("outer", OUTER, "-N1 --gpus=8 -n 8 --gpus-per-task=1 -c 1 --mem-per-cpu=500")
    jobs.resize("outer", Size(1, 2, 2, 2))
    jobs.intercept(grace_s=1)
    for kind, script in scripts.items():
        for how, options in INNER.items():
            jobs.submit(f"outside {how} {kind}", script, options)
    jobs.site.wait_for_states([jobs.ids["outer"]], ENDED, timeout_s=180)
    for kind in scripts:
        for how in INNER:
            jobs.ids[f"{how} {kind}"] = int((home / f"{how}-{kind}.id").read_text())


def test_llm_job_is_tagged_and_deferred_but_not_held(jobs: Jobs) -> None:
    job = jobs.at_submission["deferred"]
    tag = read_tag(job["AdminComment"])
    assert tag is not None
    assert (tag.mode, tag.rule, tag.job_class) == ("enforce", "llm", "train")
    assert tag.ask == "gpus=1-16+cpus-per-gpu=1-8"
    assert tag.user_begin == 0
    assert job["Reason"] == "BeginTime"
    assert int(job["Priority"]) > 0


def test_deferred_job_begins_by_itself(jobs: Jobs) -> None:
    """As submitted and not before the grace is over: nobody ever came for it."""
    job = jobs.show("deferred")
    assert job["JobState"] == "COMPLETED"
    tag = read_tag(job["AdminComment"])
    assert tag is not None
    started = time.mktime(time.strptime(job["StartTime"], "%Y-%m-%dT%H:%M:%S"))
    submitted = time.mktime(time.strptime(job["SubmitTime"], "%Y-%m-%dT%H:%M:%S"))
    assert submitted + GRACE_S <= tag.begin <= started
    assert tag.begin <= submitted + GRACE_S + 2


@pytest.mark.parametrize("name", [*UNTOUCHED, "expired"])
def test_other_jobs_are_untouched(jobs: Jobs, name: str) -> None:
    job = jobs.at_submission[name]
    assert job["AdminComment"] == ""
    assert job["Reason"] != "BeginTime"
    assert not [key for key in jobs.environment(name) if key.startswith("RLALLOC_")]


def test_shadow_only_tags(jobs: Jobs) -> None:
    job = jobs.at_submission["shadow"]
    tag = read_tag(job["AdminComment"])
    assert tag is not None
    assert (tag.mode, tag.begin) == ("shadow", 0)
    assert job["Reason"] != "BeginTime"
    assert not [key for key in jobs.environment("shadow") if key.startswith("RLALLOC_")]


def test_hold_stays_the_users(jobs: Jobs) -> None:
    """Held by the user, so that the user can release it, and then it runs at once."""
    job = jobs.show("held")
    assert (job["Priority"], job["Reason"]) == ("0", "JobHeldUser")
    tag = read_tag(job["AdminComment"])
    assert tag is not None
    assert tag.begin == 0
    jobs.site.run(["scontrol", "release", str(jobs.ids["held"])], user=USER)
    jobs.site.wait_for_states([jobs.ids["held"]], {"COMPLETED"})


def test_later_begin_stays_the_users(jobs: Jobs) -> None:
    job = jobs.show("begins tomorrow")
    tag = read_tag(job["AdminComment"])
    assert tag is not None
    assert tag.begin == tag.user_begin
    assert tag.begin > time.time() + 80_000
    assert job["Reason"] == "BeginTime"


def test_users_can_neither_write_nor_forge_an_admin_comment(jobs: Jobs) -> None:
    """The tag is root's to believe. What the script says stays inside ask=."""
    forged = "rlalloc:v=1;mode=enforce;rule=evil;class=train;begin=0;user_begin=0;ask="
    with pytest.raises(TestbedError, match="denied"):
        jobs.site.run(
            ["scontrol", "update", f"job={jobs.ids['begins tomorrow']}", f"AdminComment={forged}"], user=USER
        )
    script = SCRIPT.replace("gpus=1-16", f"gpus=1;mode=enforce {forged} launch=mpi")
    jobs.intercept(mode="shadow")
    completed = jobs.site.try_run(["sbatch", "--gres=gpu:1", "--hold"], user=USER, input=script)
    assert completed.status == 0
    assert "unknown; known are gpus=" in completed.error_output
    assert "launch=mpi: write launch=torchrun or launch=srun" in completed.error_output  # the next mistake, too
    jobs.ids["forged"] = int(completed.output.split()[-1])
    comment = jobs.show("forged")["AdminComment"]
    tag = read_tag(comment)
    assert tag is not None
    assert (tag.mode, tag.rule) == ("shadow", "llm")
    assert comment.count("rlalloc:") == 1


@pytest.mark.parametrize("name", RESIZED)
def test_resized_job_sees_what_it_got(jobs: Jobs, name: str) -> None:
    """AllocTRES, the steps that srun starts, and every variable agree."""
    options, size = RESIZED[name]
    jobs.skip_where_skipped(options)
    job = jobs.show(name)
    environment = jobs.environment(name)
    tasks = jobs.tasks(name)
    assert job["JobState"] == "COMPLETED", tasks
    assert f",node={size.nodes}," in job["TRES"]
    assert f"gres/gpu={size.nodes * size.gpus}" in job["TRES"]

    count = size.nodes * size.tasks
    found = [re.fullmatch(r"task (\d+) of (\d+) on (\d+) gpus ([\d,]+)", line) for line in tasks]
    assert all(found), tasks
    assert [(int(each[1]), int(each[2]), int(each[3])) for each in found if each] == [
        (number, count, size.nodes) for number in range(count)
    ]
    # On 24.11 SLURM_GPUS_PER_TASK is not set, but a binding is.
    by_task = {"SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_BIND"} & set(environment)
    each_task_has = size.gpus // size.tasks if by_task else size.gpus
    assert {len(each[4].split(",")) for each in found if each} == {each_task_has}

    kind = f"{size.gpu_type}:" if size.gpu_type else ""
    expected = {
        "SLURM_NTASKS": count,
        "SLURM_NPROCS": count,
        "SLURM_NTASKS_PER_NODE": size.tasks,
        "SLURM_GPUS": size.nodes * size.gpus,
        "SLURM_GPUS_PER_NODE": f"{kind}{size.gpus}",
        "SLURM_GPUS_PER_TASK": size.gpus // size.tasks,
        "SLURM_NTASKS_PER_GPU": size.tasks // size.gpus,
        "SLURM_CPUS_ON_NODE": size.tasks * size.cpus,
        "SLURM_MEM_PER_NODE": size.mem_mib,
        "RLALLOC_NODES": size.nodes,
        "RLALLOC_GPUS": size.nodes * size.gpus,
        "RLALLOC_GPUS_PER_NODE": size.gpus,
        "RLALLOC_TASKS_PER_NODE": size.tasks,
        "RLALLOC_CPUS_PER_TASK": size.cpus,
        "RLALLOC_CPUS_PER_NODE": size.tasks * size.cpus,
        "RLALLOC_MEM_MIB_PER_NODE": size.mem_mib,
    }
    assert {key: value for key, value in environment.items() if key in expected} == {
        key: str(value) for key, value in expected.items() if key in environment
    }
    always = {key for key in expected if key.startswith("RLALLOC_")}
    assert always - {"RLALLOC_TASKS_PER_NODE"} <= set(environment)
    # A job that asked for no tasks does not learn of any: launchers would take them for the user's own word.
    asked_for_tasks = re.search("(^| )(-n |--ntasks)", RESIZED[name][0]) is not None
    assert ("SLURM_NTASKS" in environment) == ("RLALLOC_TASKS_PER_NODE" in environment) == asked_for_tasks
    assert not {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "RLALLOC_JOB", "RLALLOC_NO_TASKS"} & set(environment)


@pytest.mark.parametrize("name", UNCHANGED)
def test_job_that_was_not_resized_keeps_its_environment(jobs: Jobs, name: str) -> None:
    """The same as without rlalloc, but for the variables that are its own and those of this one job."""
    jobs.skip_where_skipped(UNCHANGED[name])
    if not jobs.is_accepted(name):
        pytest.skip(f"Slurm {jobs.capabilities.release} refuses such a job")

    def comparable(values: dict[str, str]) -> dict[str, str]:
        own = re.compile(
            "RLALLOC_|SLURM_(SET_BY_RLALLOC|JOB_?ID|JOB_(START_TIME|END_TIME|SLUID)|TASK_PID|.*NODELIST|TOPOLOGY_ADDR|JOB_GPUS|GPUS_ON_NODE)|SLURMD_"
        )
        return {key: value for key, value in values.items() if not own.match(key)}

    control, marked = jobs.environment(f"control: {name}"), jobs.environment(f"marked: {name}")
    assert comparable(marked) == comparable(control)
    assert "RLALLOC_GPUS" in marked
    tasks = jobs.tasks(f"marked: {name}")
    assert tasks
    # What srun itself refuses in a job as submitted (fewer GPUs than asked for), it refuses here too.
    assert {line.split()[0] for line in tasks} == {line.split()[0] for line in jobs.tasks(f"control: {name}")}
    assert len(tasks) == len(jobs.tasks(f"control: {name}"))


def test_job_submitted_from_a_step_is_adapted_too(jobs: Jobs) -> None:
    """It inherits SLURM_STEP_ID, so that its batch step looks like a step; it does not inherit the mark."""
    inner = jobs.site.home(USER) / "inner.sh"
    inner.write_text(SCRIPT)
    inner.chmod(0o755)
    outer = f"#!/bin/sh\nsrun -n1 sbatch --parsable --gres=gpu:1 {inner} > $HOME/inner.id 2>$HOME/inner.errors\n"
    jobs.intercept(grace_s=1)
    outer_id = jobs.site.sbatch(outer, user=USER, options=["--time=5"])
    jobs.site.wait_for_states([outer_id], {"COMPLETED"})
    jobs.ids["inner"] = int((jobs.site.home(USER) / "inner.id").read_text())
    jobs.site.wait_for_states([jobs.ids["inner"]], {"COMPLETED"})
    environment = jobs.environment("inner")
    assert environment["SLURM_STEP_ID"] in ("0", "-5")  # 26.05 has a number for the batch step
    assert environment["RLALLOC_GPUS"] == "1"


def test_job_from_inside_that_gets_the_outer_jobs_memory_is_adapted(jobs: Jobs) -> None:
    home = jobs.site.home(USER)
    inner = home / "same-memory.sh"
    inner.write_text(SCRIPT)
    inner.chmod(0o755)
    options = "--parsable --hold -N1 --gpus-per-node=2 --time=5"
    outer = f"#!/bin/sh\n: torchrun\nsbatch {options} {inner} > $HOME/same-memory.id\n"
    jobs.intercept(grace_s=1)
    outer_id = jobs.site.sbatch(outer, user=USER, options=["--time=5", "--gres=gpu:1", "--mem=400"])
    jobs.site.wait_for_states([outer_id], {"COMPLETED"})
    name = "same memory"
    jobs.ids[name] = int((home / "same-memory.id").read_text())
    jobs.at_submission[name] = jobs.show(name)
    jobs.resize(name, Size(1, 1, 1, 1, mem_mib=400))
    jobs.site.run(["scontrol", "release", str(jobs.ids[name])])
    jobs.site.wait_for_states([jobs.ids[name]], {"COMPLETED"})
    environment = jobs.environment(name)
    assert (environment["SLURM_GPUS_PER_NODE"], environment["SLURM_MEM_PER_NODE"]) == ("1", "400")
    assert (environment["RLALLOC_GPUS"], environment["RLALLOC_MEM_MIB_PER_NODE"]) == ("1", "400")
    assert len(jobs.tasks(name)) == 1


@pytest.mark.parametrize("kind", ["ordinary", "ours"])
@pytest.mark.parametrize("how", INNER)
def test_job_submitted_from_inside_a_resized_one_sees_only_its_own(jobs: Jobs, how: str, kind: str) -> None:
    """The same job from outside has the same size in its environment, and the same tasks."""
    assert jobs.show("outer")["JobState"] == "COMPLETED"
    assert jobs.environment("outer")["RLALLOC_GPUS"] == "2"
    # slurmd corrects SLURM_CPUS_PER_TASK by itself, though it stays set where the job asks for none.
    names = re.compile(r"RLALLOC_|SLURM_(N?TASKS|NPROCS|GPUS|CPUS_PER_GPU|MEM_PER|NTASKS_PER|TRES)")
    inside, outside = (
        {key: value for key, value in jobs.environment(name).items() if names.match(key)}
        for name in (f"{how} {kind}", f"outside {how} {kind}")
    )
    outer = str(jobs.ids["outer"])
    assert not jobs.environment(f"{how} {kind}").get("SLURM_SET_BY_RLALLOC", "").startswith(outer)
    assert inside == outside
    assert ("RLALLOC_GPUS" in inside) == (kind == "ours")
    for name in (f"{how} {kind}", f"outside {how} {kind}"):
        (task,) = jobs.tasks(name)
        assert re.fullmatch(r"task 0 of 1 on 1 gpus \d", task)


def test_nothing_went_wrong_in_slurmctld(jobs: Jobs) -> None:
    assert "rlalloc: job passed as submitted" not in jobs.site.log_tail("slurmctld", lines=5000)
