"""Whether rlalloc is switched off for the whole site: a small file beside the policies, which outlives every restart.

``rlalloc off --all`` and ``rlalloc on`` write it, through rlallocd where that answers; rlallocd looks at it in each
cycle.
"""

from pathlib import Path
from typing import Final

import msgspec

from rlalloc.errors import RlallocError
from rlalloc.system.shared_files import SHARED_MODE, mend_shared, read_regular_file, replace_file

FILE: Final = "switch.json"


class SwitchError(RlallocError):
    """The switch cannot be written."""


class SiteSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """The last time that somebody switched rlalloc off or on: when, who and why."""

    off: bool
    since_s: float
    who: str
    why: str

    @property
    def by(self) -> str:
        """Who and why, for the log and for people."""
        return f"by {self.who} because: {self.why}" if self.why else f"by {self.who}"


def read_switch(directory: Path) -> SiteSwitch | None:
    """The switch beside the policies in ``directory``; None if nobody has used it.

    One that cannot be read counts as off: without rlalloc, jobs run as submitted.
    """
    path = directory / FILE
    try:
        return msgspec.json.decode(read_regular_file(path), type=SiteSwitch)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError) as err:
        return SiteSwitch(off=True, since_s=0.0, who="nobody known", why=f"{path} cannot be read: {err}")


def write_switch(directory: Path, switch: SiteSwitch) -> None:
    """Put the switch in its place, for all who may write the policies. Raises SwitchError."""
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(switch), SHARED_MODE)
        mend_shared(path)
    except OSError as err:
        raise SwitchError(f"cannot write {path}: {err.strerror or err}") from err
