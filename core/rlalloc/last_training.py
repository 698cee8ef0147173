"""What the last ``rlalloc train run`` came to, beside the policies: for ``rlalloc status`` and ``rlalloc doctor``."""

import contextlib
import time
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.shared_files import mend_shared

FILE: Final = "last_training.json"


class LastTraining(msgspec.Struct, frozen=True, kw_only=True):
    """``verdict`` is the command's last word; ``failed`` where it ended with an error.

    ``succeeded_s`` is when a training last ended without an error, None where none ever did.
    """

    ended_s: float
    failed: bool
    promoted: bool
    verdict: str
    succeeded_s: float | None


def note_training(directory: Path, verdict: str, *, failed: bool, promoted: bool = False) -> None:
    """Note how a training ended. A note that cannot be written is left out: the journal has it, too."""
    now_s = time.time()
    before = read_last_training(directory)
    succeeded_s = now_s if not failed else before.succeeded_s if before is not None else None
    note = LastTraining(ended_s=now_s, failed=failed, promoted=promoted, verdict=verdict, succeeded_s=succeeded_s)
    aside = directory / f".{FILE}"
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(msgspec.json.encode(note))
        mend_shared(aside)
        aside.replace(directory / FILE)


def read_last_training(directory: Path) -> LastTraining | None:
    """The note; None where there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=LastTraining)
    except (OSError, msgspec.DecodeError):
        return None
