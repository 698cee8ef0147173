"""What happens on each of the twin sites, and when. Times are seconds from the start of the plan."""

from pathlib import Path
from typing import Final, Literal

import msgspec

from rlalloc.errors import RlallocError

GRACE_S: Final = 40
"""Longer than any cycle on a busy machine, so that decisions are seen, and not jobs that went on without one."""

SiteName = Literal["off", "random", "shipped", "again"]
"""Without rlalloc; with rlalloc and an agent that draws sizes; with the policy that ships; a second one without."""
PLAN_FILE: Final = "plan.json"
Doing = Literal["update", "cancel", "hold", "release", "requeue"]


class TwinError(RlallocError):
    """A comparison of twin sites is not possible; the message says what to do."""


class UserEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a job's user does to it, so many seconds after its submission.

    ``words`` are those of ``scontrol update``. ``once`` is what the user waits for, as in "cancel it when it runs",
    or for its return into the queue; empty: at that time, whatever the job does.
    """

    doing: Doing
    after_s: float
    words: tuple[str, ...] = ()
    once: Literal["", "RUNNING", "REQUEUED"] = ""


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job that a running job submits."""

    options: tuple[str, ...]
    directive: str = ""
    resizable: bool = True


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One call of sbatch.

    ``key``           names the job on all sites, whose job ids differ
    ``form``          the form of submission, as docs/explanation/submission-forms.md names it by its options
    ``lines``         options in the script (#SBATCH); ``options`` those of the command line
    ``environment``   options that sbatch takes from its environment (SBATCH_…)
    ``directive``     the words of its #RLALLOC line
    ``resizable``     whether its script shows an LLM job
    ``run_s``         seconds that it works in the size that it asks for, ``gpus`` in all
    ``scales``        whether it works longer with fewer GPUs
    ``after``         the key and the kind of what it depends on (afterok, afterany, afternotok)
    ``shows``         whether it writes down its environment and that of its step
    """

    key: str
    form: str
    at_s: float
    user: str
    options: tuple[str, ...]
    lines: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    directive: str = ""
    resizable: bool = True
    run_s: float = 1.0
    gpus: int = 0
    scales: bool = False
    exit_status: int = 0
    requeues_itself: bool = False
    after: tuple[str, str] | None = None
    events: tuple[UserEvent, ...] = ()
    inner: Inner | None = None
    shows: bool = True


class SiteEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator does to the site: the words of one scontrol. ``{now+N}`` stands for a time."""

    at_s: float
    words: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that happens, in the order of time.

    ``release`` is the Debian release whose Slurm runs; None: this machine's. ``limits`` are those of users,
    ``sacctmgr modify user``'s words; they are enforced where there are any. ``sampled`` says whether the queue is
    looked at every second.
    """

    seed: int
    submissions: tuple[Submission, ...]
    site_events: tuple[SiteEvent, ...] = ()
    limits: dict[str, str] = {}
    release: str | None = None
    sampled: bool = False


def write_plan(folder: Path, plan: Plan) -> None:
    """Write a plan into a new folder. Raises TwinError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise TwinError(f"{folder} is not empty: name a new folder, or compare what is in it (--recorded)")
        (folder / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    except OSError as err:
        raise TwinError(f"{folder}: {err.strerror}; name a folder that you may write to") from err


def read_plan(folder: Path) -> Plan:
    """Read the plan of a folder. Raises TwinError."""
    try:
        return msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=Plan)
    except OSError as err:
        raise TwinError(f"{folder / PLAN_FILE}: {err.strerror}; run the plan first") from err
    except msgspec.MsgspecError as err:
        raise TwinError(f"{folder / PLAN_FILE}: {err}; it was written by another version: run it again") from err
