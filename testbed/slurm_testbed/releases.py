"""Slurm of another Debian release, running on this machine as it is.

The release's Slurm packages and all that they need are unpacked into a directory of their own, and Slurm's programs
patched to load libc, libraries and plugins from there. So they need no chroot and no mount: they see this machine's
files, users and processes as its own Slurm does, and a job's script runs with this machine's programs. What a release
needs is unpacked once (about ten seconds) and kept in CACHE, for all sites and checkouts; remove the directory to
have newer packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .external_commands import run_command
from .testbed_errors import CommandFailedError, MissingSoftwareError, ReleaseUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE = Path("/var/cache/slurm-testbed")
PACKAGES = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-basic-plugins")
RECIPE = "1"
"""Counted up when what `provide` makes of the packages changes, so that older directories are not taken for it."""
UNPACK_TIMEOUT_S = 900.0
COMMAND_TIMEOUT_S = 60.0
SLURM_LIBRARY = "libslurmfull.so"


@dataclass(frozen=True)
class Release:
    """Slurm of one Debian release, unpacked and patched in `directory`."""

    name: str
    directory: Path

    @property
    def programs(self) -> Path:
        """Slurm's programs by name, for PATH."""
        return self.directory / "bin"

    @property
    def plugins(self) -> Path:
        """What slurm.conf calls PluginDir; the built-in one is this machine's own."""
        return self.directory / "plugins"

    @property
    def built_in_plugins(self) -> Path:
        """Where its programs look for plugins before they have slurm.conf: this machine's own."""
        return Path("/", self.plugins.resolve().relative_to(self.directory))

    @property
    def slurmstepd(self) -> Path:
        """What slurmd has to start for a step; the built-in one is this machine's own."""
        return self.programs / "slurmstepd"


def locate(name: str) -> Release:
    """Where the release of that name lies, or would lie."""
    recipe = " ".join((RECIPE, name, platform.machine(), *PACKAGES))
    return Release(name, CACHE / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:8]}")


def provide(name: str) -> Release:
    """Return a Debian release's Slurm, made first where it is not there yet.

    Packages come from this machine's Debian archive, as its apt reaches it, with the suite replaced by `name`.
    Raises ReleaseUnavailableError (no archive, no such release, no mmdebstrap or patchelf).
    """
    release = locate(name)
    if release.directory.is_dir():
        return release
    try:
        CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _locked(CACHE / f"{name}.lock"):
            if not release.directory.is_dir():
                _make(release)
    except (CommandFailedError, MissingSoftwareError, OSError) as error:
        raise ReleaseUnavailableError(
            f"Slurm of Debian {name} is not to be had here: {error}\n"
            "It needs root, `apt-get install mmdebstrap patchelf`, and a Debian archive that apt reaches"
        ) from error
    return release


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _make(release: Release) -> None:
    """Unpack and patch beside the final place, and rename: a directory that is there is whole."""
    work = Path(tempfile.mkdtemp(prefix=f".{release.name}-", dir=CACHE))
    work.chmod(0o755)  # apt fetches as a user of its own
    try:
        root = work / "root"
        _unpack(release.name, root, work)
        _patch(root, release)
        root.chmod(0o755)
        root.rename(release.directory)
    finally:
        shutil.rmtree(work)


def _unpack(name: str, root: Path, work: Path) -> None:
    """Unpack the packages and what they depend on; none of their scripts is run."""
    options = work / "apt.conf"
    acquire = run_command(["apt-config", "dump", "Acquire"], timeout_s=COMMAND_TIMEOUT_S)
    lines = [line for line in acquire.splitlines() if not line.startswith("Acquire::IndexTargets")]
    options.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run_command(
        [
            *("mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(PACKAGES)}"),
            *(f"--aptopt={options}", name, root, f"deb {archive()} {name} main"),
        ],
        timeout_s=UNPACK_TIMEOUT_S,
    )


def archive() -> str:
    """Address of the Debian archive that this machine's apt uses; raises CommandFailedError where it has none."""
    codename = re.search(
        r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = run_command(
        # --no-release-info: also where `apt-get update` has never run
        ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"],
        timeout_s=COMMAND_TIMEOUT_S,
    )
    sources = [line.split() for line in listed.splitlines()]
    ours = [words[0] for words in sources if codename and words[1:] == [codename[1], "main"]]
    if not ours:
        raise CommandFailedError("apt's sources name no Debian archive of this machine's release with `main`")
    # A third party may call its suite as Debian does; Debian's own directory is called debian.
    return next((address for address in ours if address.rstrip("/").endswith("/debian")), ours[0])


def _patch(root: Path, release: Release) -> None:
    """Let Slurm's programs, in their final place, load what lies there; gather them in bin/ by their names."""
    library = next(root.glob(f"usr/lib/*/slurm*/{SLURM_LIBRARY}"), None)
    if library is None:
        raise CommandFailedError(f"the packages of {release.name} have no {SLURM_LIBRARY}")
    plugins = library.parent
    places = [release.directory / place.relative_to(root) for place in (plugins, plugins.parent)]
    search = os.pathsep.join(str(place) for place in places)
    # RPATH of a program, unlike RUNPATH, counts for what its libraries and plugins load, unless these have a RUNPATH.
    for path in sorted(plugins.glob("*.so")):
        if not path.is_symlink() and _patchelf("--print-rpath", path):
            _patchelf("--remove-rpath", path)
    programs = root / "bin"
    programs.mkdir()
    for path in sorted([*root.glob("usr/bin/*"), *root.glob("usr/sbin/*")]):
        if path.is_symlink() or not _is_elf(path) or SLURM_LIBRARY not in _patchelf("--print-needed", path):
            continue
        # /lib64/ld-linux-x86-64.so.2; its link /lib64 → /usr/lib64 is made by a script that has not run
        loader = Path(_patchelf("--print-interpreter", path))
        _patchelf("--set-interpreter", f"{release.directory}/usr{loader}", path)
        _patchelf("--force-rpath", "--set-rpath", search, path)
        name = path.name.removesuffix("-wlm")
        (programs / name).symlink_to(Path("..", path.relative_to(root)))
    (root / "plugins").symlink_to(plugins.relative_to(root))


def _is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _patchelf(*arguments: str | Path) -> str:
    return run_command(["patchelf", *arguments], timeout_s=COMMAND_TIMEOUT_S).strip()
