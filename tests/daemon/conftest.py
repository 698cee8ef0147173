"""rlalloc on a real Slurm site: the plugin in slurmctld, the agent and the daemon as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlalloc.config import parse_config
from rlalloc.store import Application, Decision, Store
from slurm_testbed import Site, SiteSpec, wait_until

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "slurm_plugin"
PROGRAMS = Path(sys.executable).parent
USER = "llm-alice"

MOLDABLE = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G --time=10
#RLALLOC gpus=1-2 cpus-per-gpu=2-8
#RLALLOC mem-per-gpu=8G-64G
: torchrun train.py
env
srun sh -c 'echo step-task $SLURM_PROCID of $SLURM_NTASKS gpus $CUDA_VISIBLE_DEVICES'
"""


class Installation:
    """rlalloc as installed on one site: its configuration, store and processes."""

    def __init__(self, site: Site, settings: Mapping[str, Any]) -> None:
        self.site = site
        self.runtime = site.run_directory / "rlalloc"
        self.runtime.mkdir(exist_ok=True)
        self.config_path = site.etc / "rlalloc.yaml"
        self.store_path = site.directory / "store.sqlite"
        self.settings: dict[str, Any] = {
            "mode": "enforce",
            "grace_s": 8,
            "runtime_directory": str(self.runtime),
            "agent": {"endpoint": f"ipc://{self.runtime}/agent.sock", "deadline_s": 2.0},
            "daemon": {"poll_s": 1.0, "outcomes_every_s": 1.0, "heartbeat_s": 2.0},
            "store": {"url": f"sqlite:///{self.store_path}"},
            "policy": {"directory": str(site.directory / "policies"), "exploration": "mean"},
            "rules": [{"name": "llm", "mode": "enforce"}],
            **settings,
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.write_config()

    def write_config(self, **changes: Any) -> None:
        self.settings |= changes
        text = yaml.safe_dump(self.settings)
        parse_config(text, "the test's configuration")
        self.config_path.write_text(text)

    def start(self, program: str) -> None:
        """Start rlallocd or rlalloc-agent and wait until it does its work."""
        log = (self.site.log_directory / f"{program}.log").open("ab")
        with log:
            self.processes[program] = subprocess.Popen(
                [PROGRAMS / program, "--config", str(self.config_path)],
                env=self.site.environment(),
                stdout=log,
                stderr=log,
            )
        if program == "rlallocd":
            wait_until(self.intercepting, what="rlallocd intercepts jobs", timeout_s=30)
        else:
            wait_until(self._agent_answers, what="the agent answers", timeout_s=60)

    def intercepting(self) -> bool:
        """Whether the intercept file is there and has not expired."""
        path = self.runtime / "intercept"
        return path.exists() and time.time() < int(path.read_text().split("expires ")[1].split()[0])

    def send(self, program: str, number: signal.Signals) -> None:
        self.processes[program].send_signal(number)

    def stop(self, program: str, number: signal.Signals = signal.SIGTERM) -> int:
        """End a program and return its exit status."""
        process = self.processes.pop(program)
        process.send_signal(number)
        return process.wait(timeout=30)

    def stop_all(self) -> None:
        for program in list(self.processes):
            self.stop(program, signal.SIGKILL)

    def log(self, program: str) -> str:
        return (self.site.log_directory / f"{program}.log").read_text()

    def explain(self, job_id: int) -> list[dict[str, Any]]:
        """What ``rlalloc explain --json`` prints of a job."""
        done = subprocess.run(
            [PROGRAMS / "rlalloc", "explain", str(job_id), "--json", "--config", str(self.config_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else []

    def submit(self, script: str, *options: str) -> int:
        return self.site.sbatch(script, user=USER, options=options)

    def output(self, job_id: int) -> str:
        return (self.site.home(USER) / f"slurm-{job_id}.out").read_text()

    def decision(self, job_id: int) -> Decision:
        """Wait until the job has a decision, and return it."""
        store = Store(self.settings["store"]["url"])
        try:
            found = wait_until(lambda: store.decisions_of(job_id), what=f"job {job_id} is decided", timeout_s=30)
            return found[-1]
        finally:
            store.close()

    def application(self, decision: Decision) -> Application | None:
        store = Store(self.settings["store"]["url"])
        try:
            found = store.applications(decision.id)
            return found[-1] if found else None
        finally:
            store.close()

    def job(self, job_id: int) -> dict[str, str]:
        """``scontrol show job`` as a dictionary."""
        text = self.site.run(["scontrol", "show", "job", str(job_id), "--oneliner"])
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def _agent_answers(self) -> bool:
        done = subprocess.run(
            [PROGRAMS / "rlalloc", "status", "--config", str(self.config_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        return "serves" in done.stdout


def install(site: Site, **settings: Any) -> Installation:
    return Installation(site, settings)


def start_site(name: str, job_submit: Path = PLUGIN / "job_submit.lua") -> Site:
    runtime = Path("/var/tmp/slurm-testbed") / name / "run" / "rlalloc"
    return Site.start(
        SiteSpec(
            name=name,
            nodes=2,
            job_submit_lua=job_submit,
            etc_files={"rlalloc.lua": PLUGIN / "rlalloc.lua"},
            task_prolog=PLUGIN / "task_prolog",
            slurmctld_environment={"RLALLOC_RUNTIME_DIRECTORY": str(runtime)},
        ),
        replace=True,
    )


@pytest.fixture(scope="session")
def daemon_site() -> Iterator[Site]:
    with start_site(f"daemon-{os.getpid()}") as site:
        yield site


@pytest.fixture
def rlalloc(daemon_site: Site) -> Iterator[Installation]:
    """A fresh installation with agent and daemon running; the cluster is idle before and after."""
    installation = install(daemon_site)
    for path in daemon_site.directory.glob("store.sqlite*"):
        path.unlink()
    installation.start("rlalloc-agent")
    installation.start("rlallocd")
    yield installation
    installation.stop_all()
    (installation.runtime / "intercept").unlink(missing_ok=True)
    daemon_site.run(["scancel", "--user", USER])
