"""Processor times of a site's daemons, from /proc."""

import os
from pathlib import Path
from typing import Final

from slurm_testbed import Site

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def process_of(site: Site, program: str) -> Path:
    """The directory below /proc of a daemon of this site. Raises LookupError if it does not run."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().split(b"\0")
            of_site = str(site.directory).encode() in (path / "environ").read_bytes()
        except OSError:
            continue
        if of_site and any(word.rpartition(b"/")[2] == program.encode() for word in command[:2]):
            return path
    raise LookupError(f"{program} does not run")


def processor_s(process: Path) -> tuple[float, float]:
    """Processor time [s] of a process, and that of its children that have ended."""
    fields = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    user, system, of_children_user, of_children_system = (int(field) / _TICKS for field in fields[11:15])
    return user + system, of_children_user + of_children_system
