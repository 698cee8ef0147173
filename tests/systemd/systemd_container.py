"""A throw-away machine with systemd as PID 1: an overlay of the running root file system, booted by systemd-nspawn.

All of it lives in namespaces of its own: the overlay is mounted in a private mount namespace, the network is a
loopback of its own, and a PID namespace around systemd-nspawn ends, by the kernel, with the process that made it.
What a killed run can leave behind is one folder and an empty cgroup, which the next one removes.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final, Self

from slurm_testbed.waiting import stretched

LEFTOVERS: Final = Path("/var/tmp")  # the name below it is random, the folder ours alone
FOLDER_PREFIX: Final = "rlalloc-systemd-"
# What the machine under test may have enabled, and what has no place in the container: it would wait for a network,
# or start a service behind the test's back.
MASKED_UNITS: Final = (
    "NetworkManager-wait-online.service",
    "ifupdown-wait-online.service",
    "networking.service",
    "systemd-networkd-wait-online.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-timesyncd.service",
    "timers.target",
)
BOOT_LIMIT_S: Final = 60.0
# One for documentation (RFC 5737), on the container's loopback. Slurm asks getaddrinfo with AI_ADDRCONFIG, which
# resolves nothing, not even 127.0.0.1, where there are only loopback addresses.
ADDRESS: Final = "192.0.2.1"

# Everything from here on happens in the mount namespace that ends with the process.
_LAUNCH: Final = """
set -e
upper=$1; work=$2; root=$3
shift 3
mount -t overlay overlay -o "lowerdir=/,upperdir=$upper,workdir=$work" "$root"
exec systemd-nspawn "$@"
"""


class ContainerError(Exception):
    """The container could not be made or booted; the text has what systemd-nspawn said."""


class Container:
    """One container. Write files, boot, run commands in it, close (or use it as a context manager)."""

    def __init__(
        self,
        *,
        hostname: str = "rlalloc-test",
        binds: dict[Path, Path] | None = None,
        target: str = "basic.target",
        masked: Iterable[str] = MASKED_UNITS,
    ) -> None:
        """Make the folders. `binds` maps paths outside to paths inside, read-only.

        It boots up to `target`, without the `masked` units.
        """
        _remove_leftovers()
        self.hostname = hostname
        self._binds = binds or {}
        self._target = target
        self._masked = tuple(masked)
        # Not in /tmp, which may be a tmpfs. The name is the machine's too: letters, digits and hyphens.
        self.folder = LEFTOVERS / f"{FOLDER_PREFIX}{secrets.token_hex(6)}"
        self.folder.mkdir(mode=0o700)
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir()
            (self.folder / name).chmod(0o755)  # users inside meet upper's mode as that of /
        (self.folder / "owner").write_text(json.dumps(os.getpid()))
        self._cgroups: list[Path] = []
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._console: IO[bytes] | None = None
        self._init_pid = 0
        self._prepare()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # ---- before the boot

    def write(self, path: str, text: str, *, mode: int = 0o644, owner: str = "root") -> None:
        """Put a file into the container, over what the machine has there. Only before the boot."""
        target = self._make_parents(path)
        target.write_text(text)
        target.chmod(mode)
        shutil.chown(target, owner, owner)

    def make_device(self, path: str, major: int, minor: int) -> None:
        """Put a character device there. Only before the boot."""
        target = self._make_parents(path)
        os.mknod(target, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        target.chmod(0o666)

    def _make_parents(self, path: str) -> Path:
        """Make the folders above `path` in the upper layer, with the mode and owner that they have below it."""
        upper = self.folder / "upper"
        for parent in reversed(Path(path).parents[:-1]):
            target = upper / parent.relative_to("/")
            if not target.exists():
                target.mkdir(mode=0o755)
                if parent.exists():
                    below = parent.stat()
                    os.chown(target, below.st_uid, below.st_gid)
                    target.chmod(stat.S_IMODE(below.st_mode))
        return upper / Path(path).relative_to("/")

    def _prepare(self) -> None:
        self.write("/etc/machine-id", "")
        self.write("/etc/hostname", f"{self.hostname}\n")
        self.write("/etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} {self.hostname}\n")
        for unit in self._masked:
            self._make_parents(f"/etc/systemd/system/{unit}").symlink_to("/dev/null")

    # ---- the boot

    def boot(self) -> None:
        """Start systemd up to the target: by default sockets and tmpfiles, none of the machine's own services."""
        self._console = (self.folder / "console.log").open("wb")
        binds = [f"--bind-ro={outside}:{inside}" for outside, inside in self._binds.items()]
        command = [
            # nspawn's own death does not end its container, that of the namespace around it does.
            *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"),
            *("--pid", "--fork", "--kill-child", "--mount-proc", "--"),
            *("sh", "-c", _LAUNCH, "sh", *(str(self.folder / name) for name in ("upper", "work", "root"))),
            *("-D", str(self.folder / "root"), "--register=no", "--keep-unit", "--private-network"),
            *("--hostname", self.hostname, "--machine", self.folder.name, "--console=pipe"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", *binds),
            *("-b", f"systemd.unit={self._target}", "systemd.journald.forward_to_console=0"),
        ]
        self._cgroups = _make_cgroups(self.folder.name)
        # Not preexec_fn, which is unsafe with threads: the process moves itself, then becomes the command.
        enter = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || true; shift; done; shift; exec "$@"'
        self._nspawn = subprocess.Popen(
            ["sh", "-c", enter, "sh", *map(str, self._cgroups), "--", *command],
            env={"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            stdin=subprocess.DEVNULL,
            stdout=self._console,
            stderr=subprocess.STDOUT,
        )
        self._wait_for_boot()

    def reboot(self) -> None:
        """Shut down in good order and boot again, from the same files; what lay in memory is gone."""
        self.run("systemctl", "poweroff", check=False)
        if self._nspawn is not None:
            self._nspawn.wait(timeout=stretched(BOOT_LIMIT_S))
        self._forget_boot()
        self.boot()

    def _forget_boot(self) -> None:
        """Remove what a boot has made outside its folder."""
        self._nspawn = None
        self._init_pid = 0
        if self._console is not None:
            self._console.close()
            self._console = None
        for cgroup in self._cgroups:
            _remove_cgroup(cgroup)
        self._cgroups = []

    def _wait_for_boot(self) -> None:
        """Wait for PID 1, and for the units that it starts."""
        began = time.monotonic()
        state = ""
        while (waited_s := time.monotonic() - began) < stretched(BOOT_LIMIT_S):
            if self._nspawn is None or self._nspawn.poll() is not None:
                raise ContainerError(f"systemd-nspawn has ended: {self.console()}")
            self._init_pid = self._init_pid or _systemd_below(self._nspawn.pid)
            if self._init_pid:
                state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
                if state in {"running", "degraded"}:
                    self.run("ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo")
                    return
            time.sleep(0.1)
        raise ContainerError(f"not booted within {waited_s:.0f} s, state {state!r}: {self.console()}")

    def console(self) -> str:
        """Return what systemd-nspawn and systemd said."""
        return (self.folder / "console.log").read_text(errors="replace")

    # ---- while it runs

    def run(
        self, *argv: str, user: str | None = None, text: str | None = None, check: bool = True, limit_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root or as `user`, with `text` on its standard input."""
        as_user = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"] if user else []
        home = f"/home/{user}" if user else "/root"
        command = [
            *("nsenter", "--target", str(self._init_pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"),
            *("--", "env", "-i", "-C", "/", f"HOME={home}", f"USER={user or 'root'}", "LC_ALL=C.UTF-8"),
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            *as_user,
            *argv,
        ]
        done = subprocess.run(
            command, input=text or "", capture_output=True, text=True, timeout=stretched(limit_s), check=False
        )
        if check and done.returncode:
            raise ContainerError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def start(self, *units: str, limit_s: float = 90) -> None:
        """Start units; when that fails, say what their journal has."""
        try:
            self.run("systemctl", "start", *units, limit_s=limit_s)
        except (ContainerError, subprocess.TimeoutExpired) as error:
            raise ContainerError(f"{error}\n{self.journal(*units)}") from error

    def journal(self, *units: str, lines: int = 60) -> str:
        """Return the last lines that the journal has of these units."""
        options = [f"--unit={unit}" for unit in units]
        return self.run("journalctl", "--no-pager", "-n", str(lines), *options, check=False).stdout

    # ---- the end

    def close(self) -> None:
        """End every process inside and remove every trace. Can be called twice."""
        if self._nspawn is not None:
            if self._init_pid and self._nspawn.poll() is None:
                os.kill(self._init_pid, signal.SIGKILL)  # a namespace ends with its PID 1
            try:
                self._nspawn.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
        self._forget_boot()
        shutil.rmtree(self.folder, ignore_errors=True)


def _systemd_below(process: int) -> int:
    """Return the PID, out here, of the container's PID 1; 0 while there is none."""
    try:
        if Path(f"/proc/{process}/comm").read_text().strip() == "systemd":
            return process
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it ended between two reads
        return 0
    return next((found for child in children if (found := _systemd_below(int(child)))), 0)


def _cgroups(name: str) -> list[Path]:
    """Return where the cgroup `name` below ours is, in the hierarchies that systemd uses.

    With --keep-unit nspawn makes its cgroups below the caller's and leaves them there, and two containers of one
    caller would share them: so each has one of its own.
    """
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controller, path = line.split(":", 2)
        own[controller] = path
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            controller = "" if kind == "cgroup2" else "name=systemd"
            found.append(Path(fields.split()[4]) / own.get(controller, "/").lstrip("/") / name)
    return list(dict.fromkeys(found))


def _make_cgroups(name: str) -> list[Path]:
    """Make them where we may; elsewhere the container runs in the caller's."""
    made = []
    for cgroup in _cgroups(name):
        try:
            cgroup.mkdir()
        except OSError:
            continue
        made.append(cgroup)
    return made


def _remove_cgroup(cgroup: Path) -> None:
    """Remove a cgroup and those below it, once the kernel has let go of the processes that were in it."""
    deadline = time.monotonic() + 60
    while cgroup.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError:
                time.sleep(0.05)


def _remove_leftovers() -> None:
    """Remove what containers left whose owner was killed."""
    for folder in LEFTOVERS.glob(FOLDER_PREFIX + "*"):
        try:
            owner = json.loads((folder / "owner").read_text())
        except (OSError, ValueError):
            continue
        if not Path(f"/proc/{owner}").exists():
            for cgroup in _cgroups(folder.name):
                _remove_cgroup(cgroup)
            shutil.rmtree(folder, ignore_errors=True)
