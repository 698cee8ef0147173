"""What Prometheus is told, and that every bit of it is in the documents."""

import logging
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rlalloc.config import AgentSection, Config, parse_config
from rlalloc.policy.last_training import FILE, LastTraining, note_training
from rlalloc.policy.policies import PolicyStore
from rlalloc.system.logs import RepeatFilter
from rlalloc.system.service import Watchdog
from rlalloc_testbed import Installation
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.metrics import metrics_server
from rlallocd.metrics.installation_metrics import InstallationMetrics
from rlallocd.metrics.metrics import Metrics
from rlallocd.metrics.metrics_server import MOST, MetricsServer, serve_metrics
from rlallocd.slurm import Commands, SlurmUnavailable
from slurm_testbed import wait_until

from .conftest import MOLDABLE
from .test_agent_client import QUESTION
from .test_redecision_rules import pending_job

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
ONLY_AT_TIMES = {
    "rlallocd_agent_policy_info",
    "rlallocd_agent_policy_unusable",
    "rlallocd_agent_start_timestamp_seconds",
    "rlallocd_policy_created_timestamp_seconds",
    "rlallocd_check_level",
    "rlallocd_checks_timestamp_seconds",
}
"""Served where an agent answers, or a trained policy is in use; the test of a real daemon sees the agent's."""


def values(text: str) -> dict[str, float]:
    """Samples by name and labels, as ``rlallocd_decided_total{mode="enforce"}``."""
    return {
        f"{sample.name}{{{','.join(f'{key}={value}' for key, value in sample.labels.items())}}}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def metrics() -> Metrics:
    counters = Counter(
        cycles=3,
        decided_enforce=2,
        decided_skipped=1,
        skipped_deadline=1,
        applications_begun=2,
        outcomes_COMPLETED=4,
        redecision_asked=5,
    )
    return Metrics(counters, Counter({"squeue": 3, "scontrol update": 2}), Counter({"squeue": 1}))


@pytest.fixture
def server(metrics: Metrics) -> Iterator[MetricsServer]:
    started = serve_metrics("127.0.0.1:0", metrics.registry)
    assert started is not None
    yield started
    started.close()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """One whose agent is not there."""
    text = (
        f"runtime_directory: {tmp_path}\nagent: {{endpoint: 'ipc://{tmp_path}/agent.sock', deadline_s: 0.05}}\n"
        f"policy: {{directory: {tmp_path}/policies}}\nstore: {{url: 'sqlite:///{tmp_path}/store.sqlite'}}\n"
    )
    (tmp_path / "rlalloc.yaml").write_text(text)
    return parse_config(text, "the test's configuration")


@pytest.fixture
def installation(config: Config, tmp_path: Path) -> InstallationMetrics:
    return InstallationMetrics(tmp_path / "rlalloc.yaml", config, Watchdog())


def served_text(collector: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def test_every_metric_is_documented_and_no_other(metrics: Metrics, config: Config, tmp_path: Path) -> None:
    """Under the name that Prometheus shows: counters end in _total, histograms in _seconds."""
    suffixes = {"counter": "_total"}
    installation = InstallationMetrics(tmp_path / "rlalloc.yaml", config, Watchdog())
    families = [*metrics.registry.collect(), *installation.collect()]
    served = {f"{family.name}{suffixes.get(family.type, '')}" for family in families} | ONLY_AT_TIMES
    documented = set(re.findall(r"^\| `(rlallocd_\w+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))
    assert documented == served


def test_whatever_the_agents_connection_does_the_rest_is_served(
    installation: InstallationMetrics, tmp_path: Path
) -> None:
    """An endpoint that no socket can have, as a system without sockets left: ZeroMQ raises errors of its own."""
    impossible = AgentSection(endpoint=f"ipc://{tmp_path}/{'x' * 200}", deadline_s=0.05)
    installation.config = msgspec.structs.replace(installation.config, agent=impossible)
    found = values(served_text(installation))
    assert found["rlallocd_agent_up{}"] == 0
    assert found["rlallocd_filesystem_available_bytes{directory=store}"] > 0


def test_counters_are_those_of_the_controller(metrics: Metrics) -> None:
    found = values(generate_latest(metrics.registry).decode())
    assert found["rlallocd_cycles_total{}"] == 3
    assert found["rlallocd_decided_total{mode=enforce}"] == 2
    assert found["rlallocd_skipped_total{code=deadline}"] == 1
    assert found["rlallocd_applications_total{state=begun}"] == 2
    assert found["rlallocd_outcomes_total{state=COMPLETED}"] == 4
    assert found["rlallocd_redecision_total{step=asked}"] == 5
    assert found["rlallocd_slurm_calls_total{command=scontrol update}"] == 2
    assert found["rlallocd_slurm_errors_total{command=squeue}"] == 1


def test_gauges_show_the_latest_snapshot(metrics: Metrics) -> None:
    metrics.looked_at("shadow", taken_s=1000, pending=7, unfinished=2)
    found = values(generate_latest(metrics.registry).decode())
    assert found["rlallocd_pending_jobs{}"] == 7
    assert found["rlallocd_open_applications{}"] == 2
    assert found["rlallocd_snapshot_timestamp_seconds{}"] == 1000
    assert {key: value for key, value in found.items() if key.startswith("rlallocd_mode")} == {
        "rlallocd_mode{mode=off}": 0,
        "rlallocd_mode{mode=shadow}": 1,
        "rlallocd_mode{mode=enforce}": 0,
    }


def test_served_over_http(metrics: Metrics, server: MetricsServer) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        assert answer.read() == generate_latest(metrics.registry)


def test_promtool_finds_nothing_to_improve(
    metrics: Metrics, installation: InstallationMetrics, tmp_path: Path
) -> None:
    """Of names, units and help texts; it reads what Prometheus would."""
    note_training(tmp_path / "policies", "kept the policy in use", failed=False)
    text = generate_latest(metrics.registry).decode() + served_text(installation)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_can_be_counted_is_zero_before_it_happens() -> None:
    """Else Prometheus would see no increase when the first agent is silent or the first job is killed."""
    found = values(generate_latest(Metrics(Counter(), Counter(), Counter()).registry).decode())
    for name in (
        "rlallocd_skipped_total{code=no-agent}",
        "rlallocd_applications_total{state=lost}",
        "rlallocd_ends_of_our_doing_total{cause=out-of-memory}",
        "rlallocd_agent_failures_total{}",
        "rlallocd_store_errors_total{}",
    ):
        assert found[name] == 0


def test_calls_are_timed_and_failures_of_the_agent_counted(metrics: Metrics, config: Config) -> None:
    agent = AgentClient(config.agent.endpoint, config.agent.deadline_s)
    agent.took = metrics.asked_agent
    commands = Commands(10.0)
    commands.took = metrics.called_slurm
    try:
        with pytest.raises(AgentUnavailable):
            agent.decide([QUESTION], sample=False)
    finally:
        agent.close()
    with pytest.raises(SlurmUnavailable):
        commands.run("no-such-command-of-slurm")
    found = values(generate_latest(metrics.registry).decode())
    assert found["rlallocd_agent_failures_total{}"] == found["rlallocd_agent_request_seconds_count{}"] == 1
    assert found["rlallocd_slurm_call_seconds_count{command=no-such-command-of-slurm}"] == 1


def test_jobs_that_wait_for_us_and_the_longest(metrics: Metrics) -> None:
    jobs = [pending_job(number, submitted_s=submitted_s) for number, submitted_s in ((1, 900), (2, 990))]
    metrics.waiting(jobs, 1000.0, 60.0)
    found = values(generate_latest(metrics.registry).decode())
    assert found["rlallocd_deferred_jobs{}"] == 2
    assert found["rlallocd_deferred_longest_wait_seconds{}"] == 100
    assert found["rlallocd_grace_seconds{}"] == 60
    metrics.waiting([], 1001.0, 60.0)
    assert values(generate_latest(metrics.registry).decode())["rlallocd_deferred_longest_wait_seconds{}"] == 0


def test_a_failed_cycle_is_no_success(metrics: Metrics) -> None:
    metrics.cycled(took_s=1.0, now_s=1000.0, failed=False)
    metrics.cycled(took_s=1.0, now_s=2000.0, failed=True)
    found = values(generate_latest(metrics.registry).decode())
    assert found["rlallocd_last_success_timestamp_seconds{}"] == 1000
    assert found["rlallocd_last_cycle_timestamp_seconds{}"] == 2000


def test_trainings_are_told_from_none_to_failed(installation: InstallationMetrics, tmp_path: Path) -> None:
    def seen() -> dict[str, float]:
        return values(served_text(installation))

    assert seen()["rlallocd_training_last_end_timestamp_seconds{}"] == 0
    note_training(tmp_path / "policies", "promoted", failed=False, promoted=True)
    succeeded_s = seen()["rlallocd_training_last_success_timestamp_seconds{}"]
    assert succeeded_s > 0
    assert seen()["rlallocd_training_last_result{result=promoted}"] == 1
    note_training(tmp_path / "policies", "no store", failed=True)
    assert seen()["rlallocd_training_last_result{result=failed}"] == 1
    assert seen()["rlallocd_training_last_result{result=promoted}"] == 0
    assert seen()["rlallocd_training_last_success_timestamp_seconds{}"] == succeeded_s
    assert seen()["rlallocd_training_last_end_timestamp_seconds{}"] >= succeeded_s


def test_a_first_training_that_was_stopped_came_to_nothing(installation: InstallationMetrics, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir(exist_ok=True)
    stopped = LastTraining(
        ended_s=0.0, failed=False, promoted=False, verdict="", succeeded_s=None, stopped_s=time.time()
    )
    (tmp_path / "policies" / FILE).write_bytes(msgspec.json.encode(stopped))
    found = values(served_text(installation))
    assert found["rlallocd_training_last_end_timestamp_seconds{}"] == 0
    for result in ("failed", "kept", "promoted"):
        assert found[f"rlallocd_training_last_result{{result={result}}}"] == 0


def test_changes_of_the_policy_are_counted_by_kind(installation: InstallationMetrics, tmp_path: Path) -> None:
    policies = PolicyStore(tmp_path / "policies")
    with policies.locked():
        policies.put_in_use("v000001", by="alice", reason="", forced=True)
        policies.put_in_use("shipped", by="alice", reason="", undoes=True)
    found = values(served_text(installation))
    assert found["rlallocd_policy_changes_total{kind=forced}"] == 1
    assert found["rlallocd_policy_changes_total{kind=rollback}"] == 1
    assert found["rlallocd_policy_changes_total{kind=promotion}"] == 0
    assert found["rlallocd_policy_info{version=shipped}"] == 1
    assert found["rlallocd_policy_change_timestamp_seconds{}"] > 0


def test_a_changed_file_is_not_in_force_until_it_is_taken_up(
    installation: InstallationMetrics, config: Config, tmp_path: Path
) -> None:
    def in_force() -> float:
        return values(served_text(installation))["rlallocd_configuration_in_force{}"]

    assert in_force() == 1
    (tmp_path / "rlalloc.yaml").write_text("mode: nonsense\n")
    assert in_force() == 0
    installation.took_up(config, whole=True)
    assert in_force() == 1
    installation.took_up(config, whole=False)
    assert in_force() == 0
    (tmp_path / "rlalloc.yaml").unlink()
    assert in_force() == 0


def test_warnings_that_are_held_back_are_counted(installation: InstallationMetrics) -> None:
    def seen(name: str) -> float:
        return values(served_text(installation))[f"rlallocd_log_{name}_total{{level=warning}}"]

    before = seen("messages"), seen("repeats")
    repeats = RepeatFilter()
    for _ in range(3):
        repeats.filter(logging.LogRecord("rlallocd", logging.WARNING, "", 0, "no store", None, None))
    assert (seen("messages") - before[0], seen("repeats") - before[1]) == (3, 2)


def test_a_port_in_use_is_logged_and_no_reason_to_stop(
    metrics: Metrics, server: MetricsServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert serve_metrics(f"127.0.0.1:{server.port}", metrics.registry) is None
    assert "set metrics.listen to a free port" in caplog.text


@pytest.mark.parametrize("listen", ["no.such.host.invalid:9373", "127.0.0.1:99999"])
def test_neither_is_an_address_that_is_none(metrics: Metrics, listen: str) -> None:
    assert serve_metrics(listen, metrics.registry) is None


def test_not_served_where_not_wanted(metrics: Metrics) -> None:
    assert serve_metrics("", metrics.registry) is None


@pytest.mark.slurm
def test_a_real_daemon_counts_what_it_does(rlalloc: Installation) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    rlalloc.stop("rlallocd")
    rlalloc.write_config(metrics={"listen": f"127.0.0.1:{port}"})
    rlalloc.start("rlallocd")

    def seen() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return values(answer.read().decode())

    assert seen()["rlallocd_decided_total{mode=enforce}"] == 0
    assert seen()["rlallocd_agent_up{}"] == 1
    assert seen()["rlallocd_connected{}"] == 1
    wait_until(lambda: "rlallocd_checks_timestamp_seconds{}" in seen(), what="the checks are done", timeout_s=60)
    assert seen()["rlallocd_check_level{check=submit plugin}"] == 0
    assert seen()["rlallocd_check_level{check=accounting}"] == 0
    assert ONLY_AT_TIMES - {key.partition("{")[0] for key in seen()} == {"rlallocd_policy_created_timestamp_seconds"}
    job_id = rlalloc.submit(MOLDABLE)
    rlalloc.site.wait_for_states([job_id], {"COMPLETED"})
    wait_until(
        lambda: seen().get("rlallocd_outcomes_total{state=COMPLETED}"), what="the outcome is counted", timeout_s=60
    )
    found = seen()
    assert found["rlallocd_decided_total{mode=enforce}"] == 1
    assert found["rlallocd_applications_total{state=begun}"] == 1
    assert found["rlallocd_mode{mode=enforce}"] == 1
    assert found["rlallocd_begin_seconds_count{}"] == 1
    assert found["rlallocd_decision_seconds_count{}"] == 1
    assert found["rlallocd_agent_request_seconds_count{}"] >= 1
    assert found["rlallocd_slurm_call_seconds_count{command=scontrol update}"] >= 2
    assert found["rlallocd_intercept_expires_timestamp_seconds{}"] > found["rlallocd_time_seconds{}"]
    assert found["rlallocd_last_success_timestamp_seconds{}"] > 0
    assert found["rlallocd_filesystem_available_bytes{directory=store}"] > 0
    assert found["rlallocd_slurm_calls_total{command=scontrol update}"] >= 2
    assert found["rlallocd_slurm_calls_total{command=squeue}"] >= found["rlallocd_snapshot_seconds_count{}"] > 0


def test_many_connections_that_say_nothing_keep_nobody_out(metrics: Metrics, server: MetricsServer) -> None:
    """They hold few threads and descriptors, and who asks gets an answer."""
    before = threading.active_count()
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3 * MOST)]
    held[-1].send(b"GET /metr")
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        assert answer.read() == generate_latest(metrics.registry)
    wait_until(lambda: threading.active_count() - before <= MOST, what="no thread for each of them")
    for each in held:
        each.close()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        assert answer.status == 200


def test_a_connection_that_trickles_is_hung_up_on(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "PAGE_WITHIN_S", 0.5)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:

        def ended() -> bool:
            try:
                slow.send(b"x")
                slow.setblocking(False)
                return slow.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_until(ended, what="it is hung up on", timeout_s=60)


def test_however_many_ask_the_agent_is_asked_once(
    installation: InstallationMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []
    monkeypatch.setattr(AgentClient, "state", lambda _: asked.append(None))
    for _ in range(5):
        served_text(installation)
    assert len(asked) == 1


def test_another_path_is_not_found(server: MetricsServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/etc/passwd", timeout=30)
