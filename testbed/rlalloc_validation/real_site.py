"""Running the workload on real sites of this machine: programs of their own, one a mode, side by side.

The sites are programs of the checkout (``bench/slurm_replay`` on ``testbed/``, unless told otherwise), known here
only by their command line and the files that they write.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rlalloc.progress import ProgressCallback
from rlalloc_validation.validation_settings import ValidationError

PROGRAM: Final = "slurm_replay"
FOLDERS: Final = ("testbed", "bench")
STARTED_BY: Final = "SLURM_TESTBED_STARTED_BY"
"""Sites that were started with it are what ``make down`` ends."""
_STOPS_WITHIN_S: Final = 120.0


def checkout() -> Path:
    """The checkout that this module belongs to. Raises ValidationError if there is none."""
    root = Path(__file__).resolve().parents[2]
    if not all((root / folder).is_dir() for folder in FOLDERS) or not (root / "bench" / PROGRAM).is_dir():
        raise ValidationError(
            "the real site comes from the project's checkout (bench/ and testbed/), and this rlalloc is installed "
            "without it: run it from a checkout (docs/results/validation.md), or compare a run that was made there "
            "with --recorded"
        )
    return root


def run_real(folder: Path, modes: Sequence[str], report: ProgressCallback, program: str = PROGRAM) -> None:
    """Run the folder's workload on one real site for each of ``modes``, at the same time; each writes its MODE.json.

    ``program`` is a module of the checkout, which takes the folder and a mode.
    Raises ValidationError with the end of what a site said if one fails; the others are ended then.
    """
    root = checkout()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(root / folder) for folder in FOLDERS),
        STARTED_BY: os.environ.get(STARTED_BY, str(root)),
    }
    done = dict.fromkeys(modes, 0.0)
    with ExitStack() as stack:
        sites = {mode: _start(program, folder, mode, environment, stack) for mode in modes}
        followers = [
            threading.Thread(target=_follow, args=(site, mode, done, report), daemon=True)
            for mode, site in sites.items()
        ]
        for follower in followers:
            follower.start()
        try:
            failed = next((mode for mode, site in sites.items() if site.wait() != 0), None)
        finally:
            _stop([*sites.values()])
            for follower in followers:
                follower.join(_STOPS_WITHIN_S)
    if failed is not None:
        raise ValidationError(f"the real site failed (mode {failed}): {_end_of(folder, failed)}")


def _start(
    program: str, folder: Path, mode: str, environment: dict[str, str], stack: ExitStack
) -> "subprocess.Popen[str]":
    errors = stack.enter_context(_log(folder, mode).open("w"))
    return subprocess.Popen(
        [sys.executable, "-m", program, str(folder.resolve()), "--mode", mode],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


def _follow(site: "subprocess.Popen[str]", mode: str, done: dict[str, float], report: ProgressCallback) -> None:
    """Report the mean progress of all sites."""
    if site.stdout is None:
        return
    with site.stdout as lines:
        for line in lines:
            done[mode] = float(line)
            report("the real sites", sum(done.values()) / len(done))


def _stop(sites: Sequence["subprocess.Popen[str]"]) -> None:
    """Interrupt it like Ctrl-C: the program takes its site down first."""
    for site in sites:
        if site.poll() is None:
            site.send_signal(signal.SIGINT)
    for site in sites:
        try:
            site.wait(_STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            site.kill()


def _log(folder: Path, mode: str) -> Path:
    return folder / f"{mode}.log"


def _end_of(folder: Path, mode: str) -> str:
    lines = _log(folder, mode).read_text(encoding="utf-8", errors="replace").splitlines()
    return " ".join(lines[-4:]) or f"it said nothing; see {_log(folder, mode)}"
