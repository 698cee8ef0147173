"""One contract for all that reads Slurm: recorded answers of every generation, and real sites, by every reader.

Real sites are this machine's own Slurm and Debian trixie's; further releases come with RLALLOC_TEST_RELEASES=forky.
pyslurm is held to it where it matches the Slurm in PATH (marker ``pyslurm``).
"""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from rlalloc_testbed.required_release import require
from rlallocd.slurm import JobRecord, NodeRecord, UpdatePlan, UpdateRefused
from rlallocd.slurm.accounting import accounting
from rlallocd.slurm.control import Control
from rlallocd.slurm.generations import Capabilities, capabilities_of, generations
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnknownJob
from rlallocd.slurm.squeue_reader import SqueueReader
from slurm_testbed import Site, SiteSpec, TestbedError
from slurm_testbed.requirements import check_requirements

from .contract import DAY, assert_the_accounts, assert_the_jobs, assert_the_nodes, assert_the_requests, by_name
from .recordings import Recorded, files_of, folder_of

Found = TypeVar("Found")
ROOT = Path(__file__).parents[2]
OWN = "own"
RELEASES = (OWN, "trixie", *os.environ.get("RLALLOC_TEST_RELEASES", "").split())


FURTHER = "further"
FURTHER_FORMS = tuple(
    (f"--job-name={FURTHER}", *options)
    for options in (
        ("--gpus=2", "--cpus-per-gpu=3", "--mem-per-cpu=100"),
        ("--gpus=2", "--cpus-per-gpu=3", "--mem-per-gpu=1G", "--time=UNLIMITED"),
        ("--nodes=1-4", "--gpus-per-node=1", "--mem-per-cpu=100", "--time=1-00:00:00", "--time-min=2:00:00"),
        ("--nodes=1", "--gres=gpu:1", "--exclusive=user", "--deadline=now+3hours", "--dependency=singleton"),
        ("--nodes=2", "--gpus-per-node=1", "--ntasks-per-node=2", "--ntasks-per-socket=1", "--mem-per-cpu=1G"),
        ("--nodes=1", "--gres=gpu:1", "--mem=1G", "--exclude=n[1-2]"),
        ("--nodes=2", "--gres=gpu:1", "--mem=1G", "--contiguous", "--gres-flags=enforce-binding"),
        ("--nodes=1", "--gres=gpu:1", "--sockets-per-node=2", "--cores-per-socket=4", "--threads-per-core=1"),
        ("--nodes=1", "--gres=gpu:1", "--mem=1G", "--core-spec=2"),
    )
)


@pytest.mark.parametrize("generation", generations(), ids=lambda generation: generation.release)
class TestRecordedAnswers:
    def test_jobs_and_nodes(self, generation: Capabilities) -> None:
        reader = JsonReader(Recorded(folder_of(generation.release)), generation)
        assert_the_jobs(reader.jobs(), generation.release)
        assert_the_nodes(reader.nodes(), generation.release)

    def test_requests(self, generation: Capabilities) -> None:
        reader = JsonReader(Recorded(folder_of(generation.release)), generation)
        assert_the_requests(reader.read_back([job.job_id for job in reader.jobs()]).values(), generation.release)

    def test_accounting(self, generation: Capabilities) -> None:
        commands = Recorded(folder_of(generation.release))
        assert_the_accounts(accounting(commands, [1], since_s=0), by_name(JsonReader(commands, generation).jobs()))

    def test_configuration_and_partitions(self, generation: Capabilities) -> None:
        assert_what_scontrol_tells(Control(Recorded(folder_of(generation.release))), generation)


def assert_what_scontrol_tells(control: Control, generation: Capabilities) -> None:
    """The version, the cluster, whether limits are enforced and GPUs accounted, partitions' limits."""
    config = control.config()
    assert capabilities_of(config.slurm_version) == generation
    assert config.cluster
    assert not config.limits_enforced
    assert config.gpus_accounted
    (gpu,) = control.partitions().values()
    assert (gpu.name, gpu.max_time_s, gpu.max_nodes) == ("gpu", DAY, None)


@pytest.fixture(scope="module", params=RELEASES)
def full_site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A site with the contract's jobs, submitted and recorded by scripts/record-fixtures.sh."""
    try:
        check_requirements()
    except TestbedError as error:
        pytest.skip(str(error))
    spec = SiteSpec(name=f"contract-{request.param}-{os.getpid()}", extra_slurm_conf={"ScronParameters": "enable"})
    if request.param != OWN:
        require(request.param)
        spec = dataclasses.replace(spec, release=request.param)
    with Site.start(spec) as site:
        environment = {"INTO": str(site.directory / "recorded"), "PYTHON": sys.executable}
        script = [str(ROOT / "scripts" / "record-fixtures.sh"), "--submit-as", "llm-alice"]
        site.run(script, environment=environment, timeout_s=300)
        yield site


@pytest.fixture
def commands(full_site: Site, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Slurm's commands, pointed to that site."""
    monkeypatch.setenv("SLURM_CONF", str(full_site.etc / "slurm.conf"))
    monkeypatch.setenv("PATH", full_site.environment()["PATH"])
    return Commands(60)


@pytest.mark.slurm
class TestRealSites:
    def test_jobs_and_nodes(self, commands: Commands) -> None:
        version = Control(commands).config().slurm_version
        reader = JsonReader(commands, capabilities_of(version))
        assert_the_jobs(reader.jobs(), version)
        assert_the_nodes(reader.nodes(), version)

    def test_requests(self, commands: Commands) -> None:
        version = Control(commands).config().slurm_version
        reader = JsonReader(commands, capabilities_of(version))
        assert_the_requests(reader.read_back([job.job_id for job in reader.jobs()]).values(), version)

    def test_some_jobs_only(self, commands: Commands) -> None:
        reader = _json_reader(commands)
        wanted = sorted(job.job_id for job in reader.jobs() if job.name in ("plain", "held"))
        found = {job.job_id for job in reader.jobs_of(wanted)}
        assert found.issuperset(wanted)

    def test_accounting(self, commands: Commands) -> None:
        jobs = by_name(_json_reader(commands).jobs())
        wanted = [jobs["failed"].job_id, jobs["two-nodes"].job_id]
        assert_the_accounts(accounting(commands, wanted, since_s=jobs["failed"].submitted_s - 60), jobs)

    def test_configuration_and_partitions(self, commands: Commands) -> None:
        control = Control(commands)
        assert_what_scontrol_tells(control, capabilities_of(control.config().slurm_version))

    def test_what_was_recorded_reads_as_the_site_does(self, commands: Commands, full_site: Site) -> None:
        """So that a new version's recordings come from the script as they have to be."""
        recorded = Recorded(full_site.directory / "recorded")
        generation = capabilities_of(Control(commands).config().slurm_version)
        assert {path.name for path in recorded.folder.iterdir()} == set(files_of(generation))
        reader = JsonReader(recorded, generation)
        assert_the_jobs(jobs := reader.jobs(), generation.release)
        assert_the_requests(reader.read_back([job.job_id for job in jobs]).values(), generation.release)
        assert_the_nodes(reader.nodes(), generation.release)
        assert_the_accounts(accounting(recorded, [1], since_s=0), by_name(jobs))
        assert_what_scontrol_tells(Control(recorded), generation)
        for path in recorded.folder.iterdir():
            assert str(full_site.directory) not in path.read_text(encoding="utf-8")

    @pytest.mark.pyslurm
    def test_pyslurm(self, commands: Commands, full_site: Site) -> None:
        """In a process of its own: libslurm reads slurm.conf once, when pyslurm is imported."""
        version = Control(commands).config().slurm_version
        if (obstacle := _obstacle(full_site, version)) is not None:
            pytest.skip(obstacle)
        program = (
            "import msgspec, sys\n"
            "from rlallocd.slurm.slurm_commands import Commands\n"
            "from rlallocd.slurm.generations import capabilities_of\n"
            "from rlallocd.slurm.json_reader import JsonReader\n"
            "from rlallocd.slurm.pyslurm_reader import PyslurmReader\n"
            "from rlallocd.slurm.squeue_reader import SqueueReader\n"
            "commands = Commands(30)\n"
            "json_reader = JsonReader(commands, capabilities_of(sys.argv[1]))\n"
            "reader = PyslurmReader(commands, SqueueReader(commands, json_reader))\n"
            "jobs = reader.jobs()\n"
            "requests = tuple(reader.read_back([job.job_id for job in jobs]).values())\n"
            "sys.stdout.buffer.write(msgspec.json.encode((jobs, requests, reader.nodes())))\n"
        )
        text = _in_site(full_site, program, version)
        kinds = tuple[tuple[JobRecord, ...], tuple[JobRecord, ...], tuple[NodeRecord, ...]]
        jobs, requests, nodes = msgspec.json.decode(text, type=kinds)
        assert_the_jobs(jobs, version)
        assert_the_requests(requests, version)
        assert_the_nodes(nodes, version)

    def test_updates_together(self, commands: Commands, full_site: Site) -> None:
        """One scontrol carries out all updates but the first and those with blanks; each has its own answer.

        After the tests that know all jobs of the queue: what it has cancelled stays there.
        """
        jobs = [
            full_site.sbatch("#!/bin/sh\ntrue\n", user="llm-alice", options=["--hold", f"--job-name={FURTHER}"])
            for _ in range(4)
        ]
        comments = [
            "first",
            "rlalloc:v=1;ask=gpus=1-8+a.b,_-c;rlalloc-decision:x",
            'two "words"',
            "~!@#$%^&*()[]{}<>|?",
        ]
        alone: list[str] = []

        class Watched(Commands):
            def run(self, *words: str) -> str:
                alone.append(words[-1])
                return super().run(*words)

        def update(job_id: int, **fields: str) -> None:
            control.update(UpdatePlan(job_id=job_id, fields=tuple(fields.items())))

        control = Control(watched := Watched(60))
        try:
            with control.together():
                for job_id, comment in zip(jobs, comments, strict=True):
                    update(job_id, Nice="7", TresPerJob="", AdminComment=comment)
                with pytest.raises(UpdateRefused, match=rf"JobId={jobs[1]} NumNodes=3-1: .*[Nn]ode count"):
                    update(jobs[1], NumNodes="3-1")
                with pytest.raises(UnknownJob):
                    update(99_999, Nice="7")
                update(jobs[1], Nice="8")
            found = SqueueReader(commands, _json_reader(commands)).read_back(jobs)
            assert [found[job_id].admin_comment for job_id in jobs] == comments
            assert [found[job_id].nice for job_id in jobs] == [7, 8, 7, 7]
            assert alone == [f"AdminComment={comments[0]}", f"AdminComment={comments[2]}"]
            assert (watched.calls["scontrol update"], watched.errors["scontrol update"]) == (7, 2)
        finally:
            full_site.run(["scancel", f"--name={FURTHER}"])

    def test_columns(self, commands: Commands, full_site: Site, caplog: pytest.LogCaptureFixture) -> None:
        """Columns say what the JSON says, also of further forms, and say it again of unchanged rows.

        Likewise after those tests.
        """
        for options in FURTHER_FORMS:
            job_id = full_site.sbatch("#!/bin/sh\ntrue\n", user="llm-alice", options=["--hold", *options])
            full_site.run(["scontrol", "update", f"JobId={job_id}", "AdminComment=perhaps ours"])
        json_reader = _json_reader(commands)
        reader = SqueueReader(commands, json_reader)
        try:
            for _ in range(2):
                # slurmctld goes on scheduling between two readings, so one moment's difference proves nothing.
                assert poll_until_empty(lambda: differing(reader, json_reader)) == []
            assert not [record for record in caplog.records if record.name == "rlallocd.slurm.squeue_reader"]
            assert reader.read_back([99_999]) == {}
            pending = [job.job_id for job in reader.jobs() if job.pending and job.user == "llm-alice"]
            before = commands.calls["squeue"]
            assert set(reader.read_back(pending)) == set(pending)
            assert commands.calls["squeue"] == before + 1  # squeue lists this user's jobs
            assert set(reader.read_back([*pending, 99_999])) == set(pending)
            assert reader.nodes() == json_reader.nodes()
        finally:
            full_site.run(["scancel", "--state=PENDING", f"--name={FURTHER}"])

    def test_a_long_list_of_array_tasks_is_read_in_full(self, commands: Commands, full_site: Site) -> None:
        """Slurm cuts the list after 64 bytes by default. Likewise after those tests."""
        tasks = ",".join(f"{first}-{first + 1}" for first in range(0, 300, 3))
        options = ["--hold", f"--job-name={FURTHER}", f"--array={tasks}"]
        job_id = full_site.sbatch("#!/bin/sh\ntrue\n", user="llm-alice", options=options)
        full_site.run(["scontrol", "update", f"JobId={job_id}", "AdminComment=perhaps ours"])
        reader = SqueueReader(commands, _json_reader(commands))
        try:
            listed = {job.job_id: job for job in reader.jobs()}
            for found in (listed, reader.read_back([job_id]), _json_reader(commands).read_back([job_id])):
                assert (found[job_id].array_tasks, found[job_id].waiting_tasks) == (tasks, 200)
        finally:
            full_site.run(["scancel", f"--name={FURTHER}"])

    def test_a_users_text_that_imitates_another_job_changes_nothing(
        self, commands: Commands, full_site: Site
    ) -> None:
        """A comment is printed as it is, with its line ends. Likewise after those tests."""
        options = ["--hold", f"--job-name={FURTHER}"]
        ours, others = (full_site.sbatch("#!/bin/sh\ntrue\n", user="llm-alice", options=options) for _ in range(2))
        full_site.run(["scontrol", "update", f"JobId={ours}", "AdminComment=perhaps ours"])
        before = SqueueReader(commands, _json_reader(commands)).read_back([ours])[ours]
        fields = f"JobName={FURTHER} NumNodes=1 NumCPUs=1 MinMemoryNode=1G MinTmpDiskNode=1.2.3"
        text = f"Comment=x\nJobId={ours} ArrayJobId=9 ArrayTaskId=1 {fields} \nJobId=9 ArrayJobId=9 ArrayTaskId=2 "
        try:
            full_site.run(["scontrol", "update", f"JobId={others}", text], user="llm-alice")
            reader = SqueueReader(commands, _json_reader(commands))
            assert _differences({job.job_id: job for job in reader.jobs()}.get(ours), before, set()) == []
            assert _differences(reader.read_back([ours])[ours], before, set()) == []
            assert not before.unread
        finally:
            full_site.run(["scancel", "--state=PENDING", f"--name={FURTHER}"])

    def test_a_node_with_jobs_that_has_yet_to_report(self, commands: Commands, full_site: Site) -> None:
        """To a slurmctld that has just started. The last test, by each reader: pyslurm has None where Slurm has 0."""
        version = Control(commands).config().slurm_version
        by_pyslurm = _obstacle(full_site, version) is None
        program = (
            "import msgspec, sys\n"
            "from rlallocd.slurm import pyslurm_process\n"
            "sys.stdout.buffer.write(msgspec.json.encode(pyslurm_process._nodes().nodes))\n"
        )
        full_site.kill("n1", signal.SIGSTOP)
        try:
            full_site.restart_daemon("slurmctld")
            (found,) = (node for node in _json_reader(commands).nodes() if node.name == "n1")
            assert (found.usable, found.awaited, found.mem_mib_used > 0) == (True, True, True)
            if by_pyslurm:
                nodes = msgspec.json.decode(_in_site(full_site, program, version), type=tuple[NodeRecord, ...])
                assert [node for node in nodes if node.name == "n1"] == [found]
        finally:
            full_site.kill("n1", signal.SIGCONT)
        assert poll_until_empty(lambda: [node for node in _json_reader(commands).nodes() if node.awaited]) == []


def _json_reader(commands: Commands) -> JsonReader:
    return JsonReader(commands, capabilities_of(Control(commands).config().slurm_version))


def differing(reader: SqueueReader, json_reader: JsonReader) -> list[str]:
    """What columns say otherwise than JSON: of all jobs what is no single field, of pending ones, read back, all.

    Read back together, scontrol shows the whole queue; each alone, that job.
    """
    jobs = {job.job_id: job for job in json_reader.jobs() if job.state != "CANCELLED"}  # by an earlier run
    in_columns = {job.job_id: job for job in reader.jobs()}
    pending = json_reader.read_back([job_id for job_id, job in jobs.items() if job.pending])
    together = reader.read_back(list(pending))
    alone = {job_id: job for pending_id in pending for job_id, job in reader.read_back([pending_id]).items()}
    return [
        *(text for job_id, job in jobs.items() for text in _differences(in_columns.get(job_id), job, _untold(job))),
        *(
            text
            for read_back in (together, alone)
            for job_id, job in pending.items()
            for text in _differences(read_back.get(job_id), job, set())
        ),
    ]


def _untold(job: JobRecord) -> set[str]:
    """What columns leave open and is not asked for: single fields; of jobs that cannot be ours what hangs on them."""
    return {"fields"} if job.admin_comment else {"fields", "mem_mib", "is_scrontab", "array_tasks", "needs"}


def _differences(found: JobRecord | None, expected: JobRecord, besides: set[str]) -> list[str]:
    if found is None:
        return [f"{expected.name}: missing"]
    return [
        f"{expected.name}: {field}: {getattr(found, field)!r} instead of {value!r}"
        for field, value in msgspec.structs.asdict(expected).items()
        if getattr(found, field) != value and field not in besides
    ]


def poll_until_empty(read: Callable[[], list[Found]], timeout_s: float = 120) -> list[Found]:
    """Read again until nothing is found or the time is over; returns what was found last."""
    end = time.monotonic() + timeout_s
    while (found := read()) and time.monotonic() < end:
        time.sleep(0.5)
    return found


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
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
