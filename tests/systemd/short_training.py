"""The nightly training with less to simulate: all its parts run, in a minute or two."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.systemd.systemd_container import Container

CONFIGURATION: Final = "/etc/rlalloc/rlalloc.yaml"
PROGRAM: Final = "/srv/short_training.py"
DROP_IN: Final = "/etc/systemd/system/rlalloc-train.service.d/short.conf"
AWAKE: Final = "Nice=0\nCPUSchedulingPolicy=other\nIOSchedulingClass=best-effort\n"
"""At the shipped priority, other work on the machine of the tests would keep it from ending."""
PROGRAM_TEXT: Final = """
import sys
from rlalloc_trainer.pipelines import retrain
retrain.TRAIN_WORKLOADS = retrain.CHOICE_WORKLOADS = 2
retrain.HELD_OUT_WORKLOADS = 4
retrain.workload_jobs = lambda _: 10
from rlalloc_cli.main import main
if __name__ == "__main__":  # its worker processes import it, too
    sys.argv = ["rlalloc", "train", "run"]
    main()
"""
"""The command of the unit, with fewer and shorter workloads."""


@contextmanager
def at_usual_priority(container: Container) -> Iterator[None]:
    """Train beside the other tests of a busy machine, not after them."""
    container.run("install", "-d", DROP_IN.rpartition("/")[0])
    container.run("tee", DROP_IN, text=f"[Service]\n{AWAKE}")
    container.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        container.run("rm", DROP_IN)
        container.run("systemctl", "daemon-reload")


@contextmanager
def short_training(container: Container) -> Iterator[None]:
    """Simulate less in rlalloc-train.service, with 20 gradient steps, at the usual priority; then all is as ever."""
    container.run("tee", PROGRAM, text=PROGRAM_TEXT)
    container.run("install", "-d", DROP_IN.rpartition("/")[0])
    container.run("tee", DROP_IN, text=f"[Service]\nExecStart=\nExecStart=/opt/rlalloc/bin/python {PROGRAM}\n{AWAKE}")
    container.run("cp", "-p", CONFIGURATION, f"{CONFIGURATION}.kept")
    container.run("sed", "-i", "s/^  steps: .*/  steps: 20/", CONFIGURATION)
    container.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        container.run("mv", f"{CONFIGURATION}.kept", CONFIGURATION)
        container.run("rm", DROP_IN)
        container.run("systemctl", "daemon-reload")
