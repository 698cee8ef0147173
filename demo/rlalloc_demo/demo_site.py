"""The site of the demo: Slurm with rlalloc's plugin, users with the demo's scripts, and rlalloc's two programs."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlalloc.config import Config, SlurmSection, load_config
from rlalloc.errors import ConfigError
from rlalloc.job import Mode
from rlalloc.store import Store
from rlalloc_demo.demo_configuration import demo_configuration
from rlalloc_demo.demo_errors import DemoError
from rlalloc_demo.programs import Program
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.slurm import Slurm, connect
from rlallocd.submissions.intercept import INTERCEPT_FILE
from slurm_testbed import DEFAULT_ROOT, Site, SiteSpec, wait_until
from slurm_testbed.registry import STARTED_BY

PROJECT: Final = Path(__file__).resolve().parents[2]
PLUGIN: Final = PROJECT / "slurm_plugin"
JOBS: Final = PROJECT / "demo" / "jobs"
SITE_NAME: Final = "demo"
READY_WITHIN_S: Final = 300.0
"""Importing torch on a busy machine of two cores takes its time."""
ANSWERS_WITHIN_S: Final = 60.0


class Place:
    """The site and the programs that the demo's phases use."""

    def __init__(self, site: Site, config_file: Path) -> None:
        self.site = site
        self.config_file = config_file
        self.config: Config = load_config(config_file)
        # From here on this process is one of the site's: Slurm's commands that it runs go there.
        os.environ["SLURM_CONF"] = str(site.etc / "slurm.conf")
        self.slurm: Slurm = connect(SlurmSection(backend="cli"))
        self.store = Store(self.config.store.url)
        environment = site.environment()
        self.agent = Program("rlalloc-agent", config_file, site.log_directory / "rlalloc-agent.log", environment)
        self.daemon = Program("rlallocd", config_file, site.log_directory / "rlallocd.log", environment)

    def start_agent(self) -> None:
        """Start the agent and wait until it answers."""
        self.agent.start()
        self.wait_for_agent()

    def wait_for_agent(self) -> None:
        """Wait until the agent answers that was started. Raises WaitTimedOutError, DemoError."""
        self.served_version(wait_s=READY_WITHIN_S)

    def start_daemon(self) -> None:
        """Start the daemon and wait until it intercepts."""
        began_s = time.time()
        self.daemon.start()
        self._wait_for_intercept(began_s, "")

    def set_mode(self, mode: Mode) -> None:
        """Edit the configuration and let the daemon read it again, as an admin would."""
        self.config_file.write_text(demo_configuration(self.site.directory, mode), encoding="utf-8")
        began_s = time.time()
        self.daemon.reload()
        self._wait_for_intercept(began_s, f" {mode} ")
        self.config = load_config(self.config_file)

    def served_version(self, wait_s: float = ANSWERS_WITHIN_S) -> str:
        """The policy version that the agent serves. Raises WaitTimedOutError, or DemoError where the agent ended."""

        def version() -> str:
            self.agent.require_running()
            client = AgentClient(self.config.agent.endpoint, self.config.agent.deadline_s)
            try:
                return client.state().policy_version
            except AgentUnavailable:
                return ""
            finally:
                client.close()

        return wait_until(version, what="the agent to answer", timeout_s=wait_s, interval_s=0.2)

    @contextmanager
    def rlalloc(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The command ``rlalloc``, run as the admin would; its output and complaints in one stream."""
        command = [str(Path(sys.executable).parent / "rlalloc"), *words, "--config", str(self.config_file)]
        environment = {**self.site.environment(), "COLUMNS": "112", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            text=True,
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def output_of(self, job_id: int, user: str) -> str:
        """What a job's script printed, as its user finds it."""
        path = self.site.home(user) / f"slurm-{job_id}.out"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _wait_for_intercept(self, since_s: float, word: str) -> None:
        path = self.config.runtime_directory / INTERCEPT_FILE

        def renewed() -> bool:
            self.daemon.require_running()
            return path.exists() and path.stat().st_mtime >= since_s and word in _rules(path.read_text("utf-8"))

        wait_until(renewed, what=f"rlallocd to write {path}", timeout_s=READY_WITHIN_S)


def build(users: Sequence[str]) -> Place:
    """Start the site, put rlalloc and the users' scripts in place. Raises TestbedError, DemoError."""
    for path in (PLUGIN / "rlalloc.lua", PLUGIN / "job_submit.lua", PLUGIN / "task_prolog"):
        if not path.is_file():
            raise DemoError(f"{path} is missing: this checkout is not complete")
    os.environ.setdefault(STARTED_BY, str(PROJECT))  # `make down` ends the sites of this checkout
    site = Site.start(specification(users), replace=True)
    try:
        _put_scripts(site)
        for folder in (site.run_directory / "rlalloc", site.directory / "rlalloc" / "policies"):
            folder.mkdir(parents=True)
        config_file = site.etc / "rlalloc.yaml"
        config_file.write_text(demo_configuration(site.directory, "shadow"), encoding="utf-8")
        return Place(site, config_file)
    except ConfigError as error:
        site.stop()
        raise DemoError(str(error)) from error
    except BaseException:
        site.stop()
        raise


def specification(users: Sequence[str]) -> SiteSpec:
    """The demo's site: four nodes of eight GPUs, with rlalloc's three files in slurm.conf's places for them."""
    return SiteSpec(
        name=SITE_NAME,
        nodes=4,
        gpus_per_node=8,
        users=tuple(users),
        sample_s=1,  # the demo's programs run for some seconds
        job_submit_lua=PLUGIN / "job_submit.lua",
        etc_files={"rlalloc.lua": PLUGIN / "rlalloc.lua"},
        task_prolog=PLUGIN / "task_prolog",
        slurmctld_environment={"RLALLOC_RUNTIME_DIRECTORY": f"{DEFAULT_ROOT.resolve()}/{SITE_NAME}/run/rlalloc"},
        # First come, first served, with backfill. The first workload must not leave its users' second one behind.
        extra_slurm_conf={"PriorityWeightFairshare": "0", "PriorityWeightJobSize": "0", "PriorityMaxAge": "00:20:00"},
    )


def _put_scripts(site: Site) -> None:
    """Copy jobs/ and show this virtual environment where all users can read them, with links in their homes."""
    software = site.directory / "software"
    scripts = software / "llm"
    shutil.copytree(JOBS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (scripts, *scripts.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    environment = site.share(Path(sys.prefix), "venv")
    for user in site.users:
        (site.home(user) / "llm").symlink_to(scripts)
        (site.home(user) / "venv").symlink_to(environment)


def _rules(intercept: str) -> str:
    return "\n".join(line for line in intercept.splitlines() if line.startswith("rule "))
