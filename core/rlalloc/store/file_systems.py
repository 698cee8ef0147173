"""Whether programs on several machines may write one SQLite file, by the file system that it lies on.

SQLite's WAL keeps its index in shared memory, so all programs that use the file have to run on one machine
(https://sqlite.org/wal.html). On a file system that several machines use, it needs a rollback journal, and file locks
that hold on all of them (https://sqlite.org/howtocorrupt.html).
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    [
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gfs2", "glusterfs", "gpfs"),
        *("lustre", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "virtiofs", "wekafs"),
    ]
)
"""File systems that several machines may use at once; ``fuse.NAME`` counts as ``fuse``."""
_LOCKS_ON_ALL: Final = frozenset(
    ["ceph", "cifs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "smb3"]
)
"""Those whose locks hold on all machines, but for the mount options below.

With sshfs a lock holds on one machine only; with virtiofs, 9p, BeeGFS and OCFS2 that depends on settings that do not
show here.
"""
_LOCKS_ON_ONE_MACHINE: Final = frozenset(
    [
        *("local_lock=all", "local_lock=posix", "nolock"),  # NFS
        *("localflock", "localflocks", "lockproto=lock_nolock", "nobrl"),  # Lustre, GFS2 and OCFS2, GFS2, CIFS
    ]
)
"""Mount options with which a lock holds on one machine only."""


class FileSystem(NamedTuple):
    """What a path lies on."""

    kind: str
    options: frozenset[str]

    @property
    def is_network(self) -> bool:
        """Whether several machines may use it at once."""
        return self.kind.partition(".")[0] in _NETWORK

    @property
    def has_known_locks(self) -> bool:
        """Whether a lock is known to hold on all machines, if no mount option says otherwise."""
        return self.kind in _LOCKS_ON_ALL

    @property
    def local_locks(self) -> str:
        """The mount option with which locks hold on this machine only; empty where there is none."""
        return min(self.options & _LOCKS_ON_ONE_MACHINE, default="")


def file_system_of(path: Path) -> FileSystem:
    """The file system of a path, or of its nearest directory that exists; of kind "" where nobody says so."""
    here = path
    while not here.exists() and here != here.parent:
        here = here.parent
    try:
        device = here.stat().st_dev
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return FileSystem("", frozenset())
    return file_system_in(mounts, f"{os.major(device)}:{os.minor(device)}")


def file_system_in(mounts: str, device: str) -> FileSystem:
    """The same by the text of mountinfo (proc(5)) and a device's number as ``major:minor``."""
    for line in mounts.splitlines():
        mount, separator, of_device = line.partition(" - ")
        words, kinds = mount.split(), of_device.split()
        if separator and words[2] == device and len(kinds) >= 3:
            return FileSystem(kinds[0], frozenset(f"{words[5]},{kinds[2]}".split(",")))
    return FileSystem("", frozenset())
