"""The mark that rlalloc.lua leaves in a job's AdminComment, and what we add to it.

``rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=1795236700;user_begin=0;ask=gpus=1-8+cpus-per-gpu=2-8``, beside
whatever else the site keeps in that field. Only operators can write an AdminComment, so users cannot forge it.
A job that rlalloc.lua skipped has ``;skip=NAME`` in its tag, so that the daemon can say why.

Our notes follow: ``rlalloc-decision:ID`` (``rlalloc-nice:ID`` as long as only the nice was changed) and
``rlalloc-plan:DPxTPxPP``. Where the tag is all that the field has, each is joined to it by ``;``, else by a blank.
Without a blank, one scontrol can carry many updates (rlallocd.slurm.update_session).

An update of ours ends with ``rlalloc-read:UPTIME``, which rlalloc.lua removes: it refuses the update if others
may have changed the job since then, or if it has started.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from rlalloc.job import JobClass, Mode
from rlalloc.llm.parallel_layouts import ParallelPlan
from rlalloc.scripts.script_words import words_from_tag

_TAG: Final = re.compile(r"(?:^|\s)rlalloc:(v=1;\S*)")
_SKIP: Final = re.compile(r";(?:skip|decline)=[^;\s]*")
_TAG_ALONE: Final = re.compile(r"rlalloc:v=1;\S*")
_NOTE: Final = re.compile(r"(?:^|;|\s+)rlalloc-(decision|nice):[^\s;]*")
_PLAN: Final = re.compile(r"(?:^|;|\s+)rlalloc-plan:[^\s;]*")
_READING: Final = re.compile(r"(?:^|;|\s+)rlalloc-read:[^\s;]*")
_MOST_BYTES: Final = 65_535
"""What slurmdbd keeps of an AdminComment (MariaDB's TEXT); a longer one would be cut, or the record refused."""
_NOTES_BYTES: Final = 256
"""More than our notes take together."""
DEFAULTED: Final = frozenset({"cpus", "mem"})
"""What Slurm may have defaults per GPU for, by the names in a tag."""


class Tag(msgspec.Struct, frozen=True):
    """What rlalloc.lua saw at submission. ``begin`` is when we deferred the job to, 0 if we did not.

    ``unset`` names what its user left to Slurm's defaults: ``cpus`` (per task) and ``mem``. It is None in a tag of an
    earlier rlalloc.lua, which did not say.

    ``table`` is the stamp of the table by which it ``collected`` words of the script, ``script`` the script's
    fingerprint (``rlalloc.scripts.script_words``). All three are empty in a tag of an earlier rlalloc.lua.
    """

    mode: Mode
    rule: str
    job_class: JobClass = msgspec.field(name="class")
    begin: int
    user_begin: int
    ask: str = ""
    skip: str = ""
    unset: str | None = None
    table: str = ""
    script: str = ""
    collected: str = msgspec.field(name="words", default="")

    @property
    def directives(self) -> str:
        """The words of the script's ``#RLALLOC`` lines, separated by blanks."""
        return self.ask.replace("+", " ")

    @property
    def declares_class(self) -> bool:
        """Whether the job's class is its user's own word."""
        return any(word.startswith("class=") for word in self.ask.split("+"))

    @property
    def left_to_defaults(self) -> frozenset[str]:
        """The names in ``unset``; all of them where it is missing."""
        return DEFAULTED if self.unset is None else DEFAULTED & frozenset(self.unset.split("+"))

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words of the script; None if they were not all read, or the tag is of an earlier rlalloc.lua."""
        return words_from_tag(self.collected) if self.table else None


@lru_cache(maxsize=16384)
def read_tag(admin_comment: str) -> Tag | None:
    """Return the tag in an AdminComment, or None if there is none that can be read."""
    match = _TAG.search(admin_comment)
    if match is None:
        return None
    pairs = dict(part.partition("=")[::2] for part in match[1].split(";"))
    if "decline" in pairs:  # the word until November 2026; such a job may still be queued
        pairs["skip"] = pairs.pop("decline")
    try:
        return msgspec.convert(pairs, Tag, strict=False)
    except msgspec.ValidationError:
        return None


def with_skip(admin_comment: str, name: str) -> str:
    """Return the AdminComment with a tag that says for which reason the job is skipped, by its name."""
    return _TAG.sub(lambda tag: f"{_SKIP.sub('', tag[0])};skip={name}", admin_comment, count=1)


def with_note(admin_comment: str, decision_id: str, *, nice_alone: bool = False) -> str:
    """Return the AdminComment with a note of our decision added, an earlier note replaced.

    ``nice_alone``: the decision changes only the nice. After a change of size, the note stays ``rlalloc-decision``.
    """
    word = "nice" if nice_alone and not was_resized(admin_comment) else "decision"
    return _joined(_NOTE.sub("", admin_comment), f"rlalloc-{word}:{decision_id}")


def with_plan_note(admin_comment: str, plan: ParallelPlan | None) -> str:
    """Return the AdminComment with a plan for the TaskProlog, an earlier one replaced or, for None, taken away."""
    without = _PLAN.sub("", _READING.sub("", admin_comment))
    return without if plan is None else _joined(without, f"rlalloc-plan:{plan.data}x{plan.tensor}x{plan.pipeline}")


def with_reading(admin_comment: str, read_s: float) -> str:
    """Return the AdminComment with the uptime [s] at which the job was read, for rlalloc.lua, which removes it.

    An earlier note, which slurmctld keeps where it does not call rlalloc.lua, is replaced. The note is left out if
    the field has no room for it.
    """
    noted = _joined(_READING.sub("", admin_comment), f"rlalloc-read:{read_s:.2f}")
    return noted if fits_slurmdbd(noted) else admin_comment


def has_reading(admin_comment: str) -> bool:
    """Whether an AdminComment has the note of a reading, which rlalloc.lua removes before slurmctld keeps it."""
    return _READING.search(admin_comment) is not None


def has_room_for_notes(admin_comment: str) -> bool:
    """Whether an update with this AdminComment, and with our notes, surely has that of its reading."""
    return len(admin_comment.encode()) <= _MOST_BYTES - _NOTES_BYTES


def _joined(admin_comment: str, note: str) -> str:
    return f"{admin_comment}{';' if _TAG_ALONE.fullmatch(admin_comment) else ' '}{note}".strip()


def has_note(admin_comment: str) -> bool:
    """Whether a decision of ours has been written to this AdminComment: it survives a requeue with the size."""
    return _NOTE.search(admin_comment) is not None


def was_resized(admin_comment: str) -> bool:
    """Whether a decision of ours has changed the job's size, even if the job has got its request back since."""
    return any(note[1] == "decision" for note in _NOTE.finditer(admin_comment))


def fits_slurmdbd(admin_comment: str) -> bool:
    """Whether slurmdbd keeps an AdminComment whole; one that it does not is not written, so that nothing is cut."""
    return len(admin_comment.encode()) <= _MOST_BYTES
