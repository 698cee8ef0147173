"""Phase 3: ``rlalloc train run`` on what the store has, and what the agent serves after it."""

import re

import msgspec
from rich.padding import Padding
from rich.text import Text

from rlalloc.policy.policies import PolicyStore
from rlalloc_demo.checks import Check
from rlalloc_demo.demo_site import Place
from rlalloc_demo.screen import Screen
from slurm_testbed import WaitTimedOutError, wait_until

TAKEN_UP_WITHIN_S = 120.0
_PROGRESS = re.compile(r"[\r\x1b]")


class Trained(msgspec.Struct, frozen=True):
    """Which version the agent serves after training, and what was checked."""

    served: str
    promoted: bool
    checks: list[Check]


def train(place: Place, screen: Screen) -> Trained:
    """Train on the stored experience; if the gate promotes, wait until the agent serves the new version."""
    before, pid = place.served_version(), place.agent.pid
    versions = PolicyStore(place.config.policy.directory)
    experience = len(place.store.experience())
    screen.say(f"       rlalloc train run, on {experience} decided jobs and their outcomes:")
    status = _run_command(place, screen)
    found = [
        Check("rlalloc train run judged a new policy", status == 0, f"on {experience} jobs, exit status {status}")
    ]
    promoted = versions.current()
    if promoted is None or promoted == before:
        screen.say(f"       not promoted: the agent keeps serving {before}")
        return Trained(before, promoted=False, checks=found)
    try:
        wait_until(
            lambda: place.served_version() == promoted,
            what=f"the agent to serve {promoted}",
            timeout_s=TAKEN_UP_WITHIN_S,
        )
        taken_up = place.agent.pid == pid
    except WaitTimedOutError:
        taken_up = False
    served = place.served_version()
    found.append(Check("the agent took up the promoted policy without restarting", taken_up, f"{before} → {served}"))
    screen.say(f"       promoted: the agent serves {served}, and still is process {pid}")
    return Trained(served, promoted=True, checks=found)


def _run_command(place: Place, screen: Screen) -> int:
    with place.rlalloc("train", "run") as process:
        if process.stdout is not None:
            for line in process.stdout:
                words = _PROGRESS.sub("", line.rstrip())
                screen.say(Padding(Text(words, style="dim"), (0, 0, 0, 7)))
                screen.waiting("rlalloc train run")
        return process.wait()
