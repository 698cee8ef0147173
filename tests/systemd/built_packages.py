"""rlalloc's Debian packages for the tests: this version, and the next one, which has a further migration.

Built without a network. The packages of Python libraries are the real ones where RLALLOC_TEST_LIBRARIES names a
folder with them (make test-packages); elsewhere one small package borrows those of the tests' virtual environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
NEXT: Final = "99.1"
CODE: Final = ("core", "daemon", "agent", "simulator", "trainer", "cli")
REST: Final = ("scripts", "systemd", "etc", "slurm_plugin", "docs", "packages", "debian")
MIGRATION: Final = '''\
"""A column of the next version."""

import sqlalchemy as sa

from rlalloc.store.migrations.additions import add_columns

revision = "9999"
down_revision = "{last}"


def upgrade() -> None:
    """Add it."""
    add_columns("decisions", sa.Column("of_the_next_version", sa.Text))
'''
BORROWED: Final = """\
Package: rlalloc-libs
Version: {version}
Architecture: all
Maintainer: tests
Provides: {provided}
Description: Python libraries of a virtual environment
"""


def fill_wheels(folder: Path) -> None:
    """What building needs: setuptools. The one step with a network."""
    _run(PROJECT / "scripts/build-packages.sh", "wheels", "--no-libraries", "--wheels", folder)


def build(source: Path, wheels: Path, into: Path, kind: str = "deb") -> None:
    """Build rlalloc's own packages in a network namespace without any route."""
    options = ("--no-libraries", "--compression", "none", "--wheels", wheels, "--into", into)
    _run("unshare", "--net", source / "scripts/build-packages.sh", kind, *options)


def copy_as_next_version(folder: Path) -> None:
    """The project as it may be one day: another version, another revision of the store."""
    for name in (*CODE, *REST):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder / name)
    for path, mark in (
        ("pyproject.toml", "version = "),
        ("core/rlalloc/__init__.py", "__version__ = "),
        ("slurm_plugin/rlalloc.lua", "local VERSION = "),
    ):
        lines = (folder / path).read_text().splitlines()
        changed = [f'{mark}"{NEXT}"' if line.startswith(mark) else line for line in lines]
        (folder / path).write_text("\n".join(changed) + "\n")
    versions = folder / "core/rlalloc/store/migrations/versions"
    last = max(path.stem for path in versions.glob("r[0-9]*.py"))
    (versions / "r9999_of_the_next_version.py").write_text(MIGRATION.format(last=last[1:5]))


def borrow_libraries(venv_inside: Path, work: Path, into: Path) -> None:
    """A package that has what rlalloc-libs, rlalloc-libs-torch and rlalloc-libs-trainer have, by a .pth file."""
    told = _run(sys.executable, PROJECT / "scripts/stage_packages.py", "--identities").split()
    marks = dict(line.split("=") for line in told)
    provided = (
        f"rlalloc-libs-{marks['controller']}, rlalloc-libs-torch-{marks['torch']}, "
        f"rlalloc-libs-trainer-{marks['trainer']}"
    )
    root = work / "borrowed"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = root / "opt/rlalloc/lib" / python / "site-packages"
    site.mkdir(parents=True)
    (site / "borrowed.pth").write_text(f"{venv_inside}/lib/{python}/site-packages\n")
    (root / "opt/rlalloc/bin").mkdir()
    (root / "opt/rlalloc/bin/python").symlink_to(f"/usr/bin/{python}")
    (root / "opt/rlalloc/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(BORROWED.format(version=0, provided=provided))
    _put_scripts(root)
    _pack(root, into)


def add_libraries(venv_inside: Path, work: Path, into: Path) -> bool:
    """Add the real packages of Python libraries where there are some (true), or one that borrows the tests'."""
    libraries = real_libraries()
    if libraries is None:
        borrow_libraries(venv_inside, work, into)
        return False
    for package in libraries.glob("rlalloc-libs*.deb"):
        shutil.copy(package, into)
    return True


def raise_version(package: Path, version: str, work: Path, into: Path) -> None:
    """The same package as a newer one."""
    root = work / "raised"
    _run("dpkg-deb", "--raw-extract", package, root)
    control = (root / "DEBIAN/control").read_text().splitlines()
    changed = [f"Version: {version}" if line.startswith("Version:") else line for line in control]
    (root / "DEBIAN/control").write_text("\n".join(changed) + "\n")
    _pack(root, into)
    shutil.rmtree(root)


def make_unpackable(work: Path, into: Path) -> None:
    """A newer package of libraries that dpkg cannot unpack: it has a file of coreutils."""
    root = work / "unpackable"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/env").touch()
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(BORROWED.format(version="99.9", provided="nothing"))
    _put_scripts(root)
    _pack(root, into)


def _put_scripts(root: Path) -> None:
    """The maintainer scripts of a package of libraries, as debian/rules names them."""
    for script, source in (("preinst", "preinst-of-programs"), ("postinst", "postinst-of-libraries")):
        text = (PROJECT / "debian" / source).read_text().replace("#DEBHELPER#\n", "")
        (root / "DEBIAN" / script).write_text(text)
        (root / "DEBIAN" / script).chmod(0o755)


def _pack(root: Path, into: Path) -> None:
    into.mkdir(exist_ok=True)
    _run("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, into)


def real_libraries() -> Path | None:
    """The folder with the real packages of Python libraries, if there is one."""
    named = os.environ.get("RLALLOC_TEST_LIBRARIES")
    return Path(named).resolve() if named else None


def _run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
