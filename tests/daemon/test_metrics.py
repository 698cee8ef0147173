"""What Prometheus is told, and that every bit of it is in the documents."""

import re
import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rlalloc_testbed import Installation
from rlallocd.metrics import Metrics, MetricsServer, serve_metrics
from slurm_testbed import wait_until

from .conftest import MOLDABLE

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


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
    started = serve_metrics("127.0.0.1:0", metrics)
    assert started is not None
    yield started
    started.close()


def test_every_metric_is_documented_and_no_other(metrics: Metrics) -> None:
    """Under the name that Prometheus shows: counters end in _total, histograms in _seconds."""
    suffixes = {"counter": "_total"}
    served = {f"{family.name}{suffixes.get(family.type, '')}" for family in metrics.registry.collect()}
    documented = set(re.findall(r"^\| `(rlallocd_\w+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))
    assert documented == served


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


def test_a_port_in_use_is_logged_and_no_reason_to_stop(
    metrics: Metrics, server: MetricsServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert serve_metrics(f"127.0.0.1:{server.port}", metrics) is None
    assert "set metrics.listen to a free port" in caplog.text


@pytest.mark.parametrize("listen", ["no.such.host.invalid:9373", "127.0.0.1:99999"])
def test_neither_is_an_address_that_is_none(metrics: Metrics, listen: str) -> None:
    assert serve_metrics(listen, metrics) is None


def test_not_served_where_not_wanted(metrics: Metrics) -> None:
    assert serve_metrics("", metrics) is None


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

    assert "rlallocd_decided_total{mode=enforce}" not in seen()
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
    assert found["rlallocd_slurm_calls_total{command=scontrol update}"] >= 2
    assert found["rlallocd_slurm_calls_total{command=squeue}"] >= found["rlallocd_snapshot_seconds_count{}"] > 0
