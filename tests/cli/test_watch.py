"""``rlalloc watch``: once without a terminal, and again and again on one until q is pressed."""

import os
import pty
import subprocess
import sys
from collections import Counter
from pathlib import Path

from prometheus_client import generate_latest

from rlalloc_cli.watch import queue_text
from rlallocd.metrics.metrics import Metrics

RLALLOC = Path(sys.executable).with_name("rlalloc")


def config_in(folder: Path) -> Path:
    path = folder / "rlalloc.yaml"
    path.write_text(
        f"runtime_directory: {folder}\nagent: {{endpoint: 'ipc://{folder}/agent.sock', deadline_s: 0.1}}\n"
        f"store: {{url: 'sqlite:///{folder}/store.sqlite'}}\npolicy: {{directory: {folder}/policies}}\n"
        "metrics: {listen: ''}\n"
    )
    return path


def test_without_a_terminal_it_prints_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [RLALLOC, "watch", "--config", config_in(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout.startswith("queue   not known: metrics.listen is empty")
    assert "cannot reach the agent within" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_queue_is_read_from_metrics() -> None:
    """Whatever else they hold; a metric that is missing is a question mark, and another server's answer is said."""
    counters, slurm = Counter({"cycles": 3}), Counter({"squeue": 1})
    metrics = Metrics(counters, slurm, slurm)
    metrics.looked_at("shadow", taken_s=0.0, pending=7, unfinished=2)
    text = generate_latest(metrics.registry).decode()
    line = "queue   7 pending, 0 waiting for rlallocd, longest wait 0 s, 2 open updates"
    assert queue_text(text) == line
    assert len(line) <= 80
    assert queue_text("").startswith("queue   ? pending, ? waiting for rlallocd, longest wait ? s")
    assert "not rlallocd" in queue_text("<html>{ nonsense")


def test_on_a_terminal_q_ends_it(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [RLALLOC, "watch", "--every", "3600", "--config", config_in(tmp_path)],
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        seen = b""
        while b"q ends" not in seen:
            seen += os.read(ours, 4096)
        os.write(ours, b"q")
        assert process.wait(timeout=120) == 1
    os.close(ours)
    assert b"queue   not known" in seen
