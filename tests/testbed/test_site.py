"""The testbed itself: what the other tests rely on when they ask for a site."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_testbed import (
    DaemonFailedError,
    InvalidSpecError,
    MissingSoftwareError,
    NotPermittedError,
    Site,
    SiteExistsError,
    SiteNotFoundError,
    SiteSpec,
    WaitTimedOutError,
    registry,
    wait_until,
)
from slurm_testbed.processes import site_processes
from slurm_testbed.requirements import check_requirements
from slurm_testbed.shares import mounts_below
from slurm_testbed.site_users import create_unix_users, created_user_ids, remove_unix_users

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slurm
TESTBED = Path(__file__).parents[2] / "testbed"
JOB_SUBMIT = """
function slurm_job_submit(job_desc, part_list, submit_uid)
   job_desc.comment = os.getenv("GREETING")
   return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end
"""
MEMORY_HOG = "python3 -c 'import time; held = bytearray(200_000_000); time.sleep(2.5)'"


@pytest.fixture(scope="module", autouse=True)
def _requirements() -> None:
    """Skip where Slurm is not installed or the tests do not run as root."""
    try:
        check_requirements()
    except (MissingSoftwareError, NotPermittedError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A root directory of the tests' own, where users can reach it and sockets' paths stay short."""
    path = Path(tempfile.mkdtemp(prefix="st-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def small(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of one node with two GPUs and a job_submit.lua, in that root."""
    plugin = tmp_path_factory.mktemp("plugin") / "job_submit.lua"
    plugin.write_text(JOB_SUBMIT)
    spec = SiteSpec(
        name="small",
        nodes=1,
        gpus_per_node=2,
        users=("tb-dora",),
        job_submit_lua=plugin,
        slurmctld_environment={"GREETING": "hello from the environment"},
    )
    with Site.start(spec, root) as running:
        yield running


def command_line(root: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command-line program on sites below `root`."""
    line = [*prefix, sys.executable, "-m", "slurm_testbed", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TESTBED)}
    if arguments[0] == "run":
        line[line.index("run") + 1 : line.index("run") + 1] = ["--root", str(root)]
    else:
        line += ["--root", str(root)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_user_gets_two_gpus_and_sacct_shows_them(site: Site) -> None:
    """A job of an ordinary user completes with the GPUs it asked for, in its output and in sacct."""
    job = site.sbatch("#!/bin/sh\nid -un; echo $CUDA_VISIBLE_DEVICES\n", user="llm-alice", options=["--gres=gpu:2"])
    site.wait_for_states([job], {"COMPLETED"})
    assert (site.home("llm-alice") / f"slurm-{job}.out").read_text().split() == ["llm-alice", "0,1"]

    def allocated() -> str:
        return site.run(["sacct", "-nXP", f"-j{job}", "-oAllocTRES,State"]).strip()

    line = wait_until(lambda: "COMPLETED" in (line := allocated()) and line, what="sacct to know the end")
    assert isinstance(line, str)
    assert "gres/gpu=2" in line


def test_srun_inside_a_job_starts_tasks_on_several_nodes(site: Site) -> None:
    """Steps work: two nodes, two tasks each, and each task sees its node's GPUs."""
    script = "#!/bin/sh\nsrun --label sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'\n"
    options = ["--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2"]
    job = site.sbatch(script, user="llm-bob", options=options)
    site.wait_for_states([job], {"COMPLETED"})
    lines = sorted((site.home("llm-bob") / f"slurm-{job}.out").read_text().splitlines())
    assert [line.split()[2] for line in lines] == ["0,1"] * 4
    assert len({line.split()[1] for line in lines}) == 2


def test_a_short_step_has_its_peak_memory(site: Site) -> None:
    """A job may ask to be sampled often enough for a task of a few seconds."""
    options = ["--mem=1G", "--acctg-freq=task=1"]
    job = site.sbatch(f"#!/bin/sh\nsrun {MEMORY_HOG}\n", user="llm-carol", options=options)
    site.wait_for_states([job], {"COMPLETED"})

    def peak_kib() -> int:
        words = site.run(["sacct", "-nP", "--units=K", f"-j{job}.0", "-oMaxRSS"]).split()
        return int(float(words[0].rstrip("K"))) if words else 0

    assert wait_until(peak_kib, what="MaxRSS of the step") > 190_000


def test_waiting_covers_every_task_of_an_array(site: Site) -> None:
    """An array has completed when all its tasks have."""
    job = site.sbatch("#!/bin/sh\nsleep 1\n", user="llm-alice", options=["--array=1-3"])
    states = site.wait_for_states([job], {"COMPLETED"})
    assert states == {f"{job}_{task}": "COMPLETED" for task in (1, 2, 3)}


def test_two_sites_run_side_by_side(site: Site, small: Site) -> None:
    """Each site has ports, nodes and jobs of its own."""
    assert set(vars(site.ports).values()).isdisjoint(vars(small.ports).values())
    here = site.sbatch("#!/bin/sh\nsleep 60\n", user="llm-alice", options=["--job-name=only-here"])
    there = small.sbatch("#!/bin/sh\nsrun hostname\n", user="tb-dora", options=["--gres=gpu:a100:2"])
    assert small.wait_for_states([there], {"COMPLETED"})
    assert "only-here" not in small.run(["squeue", "-h", "-o%j"])
    assert "only-here" in site.run(["squeue", "-h", "-o%j"])
    assert len(small.run(["sinfo", "-hN"]).splitlines()) == 1
    with pytest.raises(WaitTimedOutError, match="JobName=only-here"):
        site.wait_for_states([here], {"COMPLETED"}, timeout_s=0)
    assert len(site.run(["sinfo", "-hN"]).splitlines()) == len(site.nodes)
    site.run(["scancel", str(here)])


def test_job_submit_lua_lies_beside_slurm_conf(small: Site) -> None:
    """The plugin in the site's etc runs, and sees the environment given to slurmctld."""
    job = small.sbatch("#!/bin/sh\ntrue\n", user="tb-dora")
    assert "Comment=hello from the environment" in small.run(["scontrol", "show", "job", str(job)])


def test_an_unknown_user_may_not_submit(small: Site) -> None:
    """Associations are enforced: who has none is refused."""
    refused = small.try_run(["sbatch", "--account=nobodys", "--wrap=true"], user="tb-dora")
    assert refused.status != 0
    assert "Invalid account" in refused.error_output


def test_a_killed_slurmctld_comes_back_with_its_jobs(small: Site) -> None:
    """Faults: kill -9 ends the controller, start_daemon recovers what it had."""
    job = small.sbatch("#!/bin/sh\ntrue\n", user="tb-dora", options=["--hold"])
    small.run(["scontrol", "show", "job", str(job)])
    small.restart_daemon("slurmctld")  # writes the state down
    small.kill("slurmctld")
    assert not small.is_running("slurmctld")
    assert small.try_run(["scontrol", "ping"]).status != 0
    small.start_daemon("slurmctld")
    assert small.job_states([job]) == {str(job): "PENDING"}
    small.run(["scontrol", "release", str(job)])
    small.wait_for_nodes()
    small.wait_for_states([job], {"COMPLETED"})


@pytest.mark.parametrize("name", ["slurmdbd", "mariadbd", "munged", "n1"])
def test_each_daemon_can_be_killed_and_started(small: Site, name: str) -> None:
    """After that the site works as before."""
    small.kill(name)
    assert not small.is_running(name)
    small.start_daemon(name)
    assert small.is_running(name)
    small.wait_for_nodes()
    assert "tb-dora" in wait_until(
        lambda: small.try_run(["sacctmgr", "-nP", "show", "user"]).output, what="slurmdbd to answer"
    )


def test_a_start_of_what_runs_is_refused(small: Site) -> None:
    """A second slurmctld is not started beside the first."""
    with pytest.raises(DaemonFailedError, match="runs already"):
        small.start_daemon("slurmctld")


def test_a_share_opens_the_way_to_a_closed_directory(small: Site, tmp_path: Path) -> None:
    """Users read a tree below a directory of mode 700, which stays as it was when the site ends."""
    tmp_path.chmod(0o700)
    closed = tmp_path / "project"
    closed.mkdir(mode=0o755)
    (closed / "file").write_text("content")
    target = small.share(closed, "closed")
    assert small.run(["cat", target / "file"], user="tb-dora") == "content"
    assert not target.is_symlink()
    opened = small.share(Path("/usr/share"), "open")
    assert opened.is_symlink()


def test_the_database_takes_databases_of_tests(small: Site) -> None:
    """database_url creates one and names it."""
    url = small.database_url("experience")
    assert url.startswith("mysql+pymysql://slurm:")
    assert url.endswith(f"@127.0.0.1:{small.ports.mariadbd}/experience")


def test_a_name_in_use_is_refused(root: Path, small: Site) -> None:
    """A second site of the same name is an error that says what to do; exit status 2."""
    with pytest.raises(SiteExistsError, match="slurm_testbed down small"):
        Site.start(SiteSpec(name="small"), root)
    refused = command_line(root, "up", "--name", "small")
    assert refused.returncode == 2
    assert "small exists" in refused.stderr
    assert small.is_running("slurmctld")


def test_the_command_line_shows_and_uses_a_site(root: Path, small: Site) -> None:
    """The commands list, env, logs and run."""
    assert "running" in command_line(root, "list").stdout
    exports = command_line(root, "env", "small").stdout
    nodes = subprocess.run(["sh", "-c", f"{exports}\nsinfo -h -o %D"], capture_output=True, text=True, check=True)
    assert nodes.stdout.split() == ["1"]
    assert "slurmctld version" in command_line(root, "logs", "small", "slurmctld", "-n", "5000").stdout
    ran = command_line(root, "run", "small", "--user", "tb-dora", "--", "sh", "-c", "id -un; pwd; exit 3")
    assert (ran.returncode, ran.stdout.split()) == (3, ["tb-dora", str(small.home("tb-dora"))])
    assert command_line(root, "env", "absent").returncode == 2


def test_a_site_that_cannot_start_leaves_nothing(root: Path) -> None:
    """The error has the daemon's own words, and the half-started site is gone."""
    spec = SiteSpec(name="broken", nodes=1, users=(), extra_slurm_conf={"SelectType": "select/none-such"})
    with pytest.raises(DaemonFailedError, match="none-such"):
        Site.start(spec, root)
    assert not (root / "broken").exists()
    assert site_processes(root / "broken") == []


def test_down_cleans_a_crashed_site(root: Path, tmp_path: Path) -> None:
    """After kill -9 of every daemon nothing stays: no process, directory, mount or user."""
    tmp_path.chmod(0o700)
    (tmp_path / "kept").write_text("x")
    site = Site.start(SiteSpec(name="crash", nodes=2, users=("tb-crash",)), root)
    site.share(tmp_path, "mounted")
    # One process that left its session, one whose environment is cleared as well.
    script = "#!/bin/sh\nsetsid sleep 4321 &\n(cd /; env -i setsid /bin/sleep 4322 &)\nsrun /bin/sleep 4323\n"
    site.sbatch(script, user="tb-crash", options=["--nodes=2"])
    user_id = pwd.getpwnam("tb-crash").pw_uid

    def sleepers() -> int:
        listed = subprocess.run(
            ["ps", "-o", "comm=,stat=", "-u", str(user_id)], capture_output=True, text=True, check=False
        )
        return sum(line.startswith("sleep ") and " Z" not in line for line in listed.stdout.splitlines())

    wait_until(lambda: sleepers() == 4, what="the job's processes")
    for name in site.daemon_names:
        site.kill(name)
    for process in site_processes(site.directory):
        if process.program == "slurmstepd":
            os.kill(process.pid, signal.SIGKILL)
    assert command_line(root, "down", "crash").returncode == 0
    assert site_processes(site.directory, [user_id]) == []
    assert sleepers() == 0
    assert not site.directory.exists()
    assert mounts_below(site.directory) == []
    assert (tmp_path / "kept").read_text() == "x"
    assert command_line(root, "down", "crash").returncode == 0
    with pytest.raises(SiteNotFoundError):
        Site.attach("crash", root)


def test_a_host_name_that_does_not_resolve_is_no_matter() -> None:
    """A site starts and runs jobs where the machine's name is unknown; with it go its users."""
    own = Path(tempfile.mkdtemp(prefix="st-", dir="/var/tmp"))
    own.chmod(0o755)
    try:
        commands = (
            "set -e; hostname no-such-host.example; "
            f'testbed="{sys.executable} -m slurm_testbed"; '
            f"$testbed up --name nameless --nodes 2 --user tb-eve --root {own}; "
            f"$testbed run nameless --user tb-eve --root {own} -- srun -N2 --gres=gpu:1 id -un; "
            f"$testbed down nameless --root {own}"
        )
        ran = command_line_shell(["unshare", "--uts", "sh", "-c", commands])
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.split().count("tb-eve") == 2
        assert "tb-eve" not in {entry.pw_name for entry in pwd.getpwall()}
    finally:
        command_line(own, "down", "--all")
        shutil.rmtree(own)


def command_line_shell(line: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a line that uses the command-line program itself."""
    environment = {**os.environ, "PYTHONPATH": str(TESTBED)}
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "../etc"}, "site name"),
        ({"nodes": 0}, "nodes = 0"),
        ({"users": ("root:x",)}, "user name"),
        ({"etc_files": {"slurm.conf": Path("/dev/null")}}, "plain file name"),
        ({"job_submit_lua": Path("/no/such.lua")}, "no such file"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, object], message: str) -> None:
    """Before anything is started, with the value's name."""
    with pytest.raises(InvalidSpecError, match=message):
        SiteSpec(**values)  # type: ignore[arg-type]


def test_users_of_a_testbed_that_is_gone_are_taken_over(tmp_path: Path) -> None:
    """What a crashed run left in /etc/passwd is no obstacle, and goes with the next one."""
    create_unix_users(["tb-orphan"], tmp_path / "gone")
    create_unix_users(["tb-orphan"], tmp_path)
    assert pwd.getpwnam("tb-orphan").pw_uid in created_user_ids(tmp_path)
    assert remove_unix_users(tmp_path) == ["tb-orphan"]
    with pytest.raises(KeyError):
        pwd.getpwnam("tb-orphan")


def test_down_by_who_started_it_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make down` in one checkout never ends a site of another."""
    own = Path(tempfile.mkdtemp(prefix="st-", dir="/var/tmp"))
    for name, owner in (("mine", "/here"), ("theirs", "/there")):
        monkeypatch.setenv(registry.STARTED_BY, owner)
        registry.claim(SiteSpec(name=name), own)
    assert command_line(own, "down", "--started-by", "/here").returncode == 0
    assert registry.site_names(own) == ["theirs"]
    assert command_line(own, "down", "--all").returncode == 0
    shutil.rmtree(own)
