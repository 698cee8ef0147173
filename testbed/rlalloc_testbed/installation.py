"""One installation of rlalloc on a site, and a site that it can be installed on."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlalloc.config import load_config, parse_config
from rlalloc.store import Application, Decision, Store
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.process.daemon_state import read_daemon_state
from slurm_testbed import DEFAULT_ROOT, Site, SiteSpec, WaitTimedOutError, wait_until
from slurm_testbed.waiting import stretched

PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
PROGRAMS = Path(sys.executable).parent
USER = "llm-alice"
_BACKEND = os.environ.get("RLALLOC_TEST_BACKEND", "auto")


class Installation:
    """rlalloc as installed on one site: its configuration, store and processes.

    With ``on_backup`` it is the one beside the site's backup slurmctld, over the same store.
    """

    def __init__(self, site: Site, settings: Mapping[str, Any], *, on_backup: bool = False) -> None:
        self.site = site
        self._on_backup = on_backup
        self._suffix = "-backup" if on_backup else ""
        self.runtime = site.run_directory / f"rlalloc{self._suffix}"
        self.runtime.mkdir(exist_ok=True)
        self.config_path = site.etc / f"rlalloc{self._suffix}.yaml"
        self.store_path = site.directory / "store.sqlite"
        self.settings: dict[str, Any] = {
            "mode": "enforce",
            "grace_s": 8,
            "runtime_directory": str(self.runtime),
            "nodes": {"task_prolog": "trusted"},  # one script of the site serves all nodes
            "agent": {"endpoint": f"ipc://{self.runtime}/agent.sock", "deadline_s": 2.0},
            "daemon": {"poll_s": 1.0, "outcomes_every_s": 1.0, "heartbeat_s": 5.0},
            "history": {"first_days": 0},  # a new site has no past
            "metrics": {"listen": ""},
            "store": {"url": f"sqlite:///{self.store_path}"},
            "policy": {"directory": str(site.directory / "policies"), "exploration": "mean"},
            "rules": [{"name": "llm", "mode": "enforce"}],
            **settings,
        }
        self.environment: dict[str, str] = {}
        """What programs get beside the site's environment, from their next start on."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.write_config()

    def write_config(self, **changes: Any) -> None:
        """Write the configuration with these top-level keys changed."""
        self.settings |= changes
        self.settings["slurm"] = {"backend": _BACKEND} | self.settings.get("slurm", {})
        self.settings["store"].setdefault("key_file", f"{self.site.directory}/journal.key")
        text = yaml.safe_dump(self.settings)
        parse_config(text, "the test's configuration")
        self.config_path.write_text(text)

    def start(self, program: str, instead: Sequence[str] = ()) -> None:
        """Start rlallocd or rlalloc-agent and wait until it does its work, or stands by.

        ``instead`` is a command in the program's place, with the same options.
        """
        command: list[str | Path] = [*(instead or (PROGRAMS / program,)), "--config", str(self.config_path)]
        with self._log_file(program).open("ab") as log:
            self.processes[program] = subprocess.Popen(
                self.site.inside(self.site.on_backup_host(command) if self._on_backup else command),
                env=self.site.environment() | self.environment,
                stdout=log,
                stderr=log,
            )
        if program == "rlallocd":
            wait_until(
                lambda: self.intercepting() or self.stands_by(), what="rlallocd intercepts jobs", timeout_s=120
            )
        else:
            wait_until(self._agent_answers, what="the agent answers", timeout_s=120)

    def intercepting(self) -> bool:
        """Whether the intercept file is there and has not expired."""
        path = self.runtime / "intercept"
        return path.exists() and time.time() < int(path.read_text().split("expires ")[1].split()[0])

    def stands_by(self) -> str:
        """Why rlallocd stands by; empty where it does not, or does not run."""
        state = read_daemon_state(self.runtime)
        return "" if state is None or state.stopped else state.standby

    def send(self, program: str, number: signal.Signals) -> None:
        """Send a signal to a program."""
        self.processes[program].send_signal(number)

    def read_again(self) -> None:
        """Have rlallocd read its configuration again, and all of slurmctld's limits and reservations."""
        before = self.log("rlallocd").count("configuration reloaded")
        self.send("rlallocd", signal.SIGHUP)
        wait_until(
            lambda: self.log("rlallocd").count("configuration reloaded") > before,
            what="rlallocd has read its configuration again",
            timeout_s=60,
        )

    def stop(self, program: str, number: signal.Signals = signal.SIGTERM) -> int:
        """End a program and return its exit status."""
        process = self.processes.pop(program)
        process.send_signal(number)
        return process.wait(timeout=stretched(60))

    def stop_all(self) -> None:
        """Kill what still runs."""
        for program in list(self.processes):
            self.stop(program, signal.SIGKILL)

    def log(self, program: str) -> str:
        """All that a program has logged."""
        return self._log_file(program).read_text()

    def _log_file(self, program: str) -> Path:
        return self.site.log_directory / f"{program}{self._suffix}.log"

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
        """Submit a batch script as an ordinary user; returns the job's id."""
        return self.site.sbatch(script, user=USER, options=options)

    def output(self, job_id: int) -> str:
        """What a job of that user printed."""
        return (self.site.home(USER) / f"slurm-{job_id}.out").read_text()

    def decision(self, job_id: int) -> Decision:
        """Wait until the job has a decision, and return it."""
        store = Store(self.settings["store"]["url"])
        try:
            found = wait_until(lambda: store.decisions_of(job_id), what=f"job {job_id} is decided", timeout_s=120)
            return found[-1]
        except WaitTimedOutError as err:
            # If the job has no tag, rlallocd had not renewed the intercept file for three heartbeats. A job that the
            # plugin skips ("skip=") is not deferred, and may have run before rlallocd looked.
            tag = self.site.try_run(["scontrol", "show", "job", str(job_id)]).output.partition("AdminComment=")[2]
            last = self.log("rlallocd")[-2000:]
            raise WaitTimedOutError(f"{err}; tag: {tag.splitlines()[:1]}; rlallocd's last words:\n{last}") from err
        finally:
            store.close()

    def application(self, decision: Decision) -> Application | None:
        """The last entry of the journal for a decision, if there is one."""
        store = Store(self.settings["store"]["url"])
        try:
            found = store.applications(decision.id)
            return found[-1] if found else None
        finally:
            store.close()

    def job(self, job_id: int) -> dict[str, str]:
        """``scontrol show job`` as a dictionary; TRES is what the job has or, while it waits, asks for."""
        text = self.site.run(["scontrol", "show", "job", str(job_id), "--oneliner"])
        job = dict(word.split("=", 1) for word in text.split() if "=" in word)
        # Since 23.02 in two fields; 22.05 has one.
        allocated, requested = job.get("AllocTRES", "(null)"), job.get("ReqTRES", "")
        return {"TRES": requested if allocated == "(null)" else allocated, **job}

    def _agent_answers(self) -> bool:
        """Ask the agent from this process: a command would take as long as the agent's own start."""
        client = AgentClient.of(load_config(self.config_path).agent)
        try:
            client.state()
        except AgentUnavailable:
            return False
        finally:
            client.close()
        return True


def install(site: Site, **settings: Any) -> Installation:
    """Install rlalloc on a site; ``settings`` replace top-level keys of its configuration."""
    return Installation(site, settings)


def install_on_backup(site: Site, **settings: Any) -> Installation:
    """The same on the host of the site's backup slurmctld."""
    return Installation(site, settings, on_backup=True)


def start_site(name: str, **changes: Any) -> Site:
    """Start a site with the plugin in its slurmctld: two nodes, unless ``changes`` (of SiteSpec) say otherwise."""
    runtime = DEFAULT_ROOT / name / "run" / "rlalloc"
    as_usual = SiteSpec(
        name=name,
        nodes=2,
        job_submit_lua=PLUGIN / "job_submit.lua",
        etc_files={"rlalloc.lua": PLUGIN / "rlalloc.lua"},
        task_prolog=PLUGIN / "task_prolog",
        slurmctld_environment={"RLALLOC_RUNTIME_DIRECTORY": str(runtime)},
    )
    return Site.start(dataclasses.replace(as_usual, **changes), replace=True)
