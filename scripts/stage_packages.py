"""Stages what rlalloc's packages install: a folder per package, as packages/layout.toml says.

    stage_packages.py [--source DIR] --wheels DIR --into DIR PACKAGE ...    stage packages
    stage_packages.py [--source DIR] --identities                           print the hash of each layer

debian/rules and packages/rlalloc.spec run it; both make packages of what is staged. It needs nothing but Python's
standard library, and no network: all Python libraries come from the folder of wheels. ``--source`` is a copy of the
project, because setuptools leaves files of its own in it.
"""

import argparse
import compileall
import hashlib
import platform
import py_compile
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from torch_for_cpus import cuda_of

PREFIX: Final = Path("opt/rlalloc")
PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE: Final = PREFIX / "lib" / PYTHON / "site-packages"
_UNNEEDED: Final = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""Of pip's notes: it manages none of these files, and they name folders of the machine that built the package."""


class StagingError(Exception):
    """A package cannot be staged; the text says what is wrong."""


@dataclass(frozen=True)
class Layout:
    """One table of packages/layout.toml, which describes the fields."""

    modules: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    libraries: str = ""
    environment: bool = False
    dropped: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, str | list[str]] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)


def read_layouts(source: Path) -> dict[str, Layout]:
    """All packages by name. Raises TypeError for a field that there is not."""
    tables = tomllib.loads((source / "packages" / "layout.toml").read_text())
    return {name: Layout(**table) for name, table in tables.items()}


def pinned(source: Path, layer: str) -> tuple[str, ...]:
    """The lines of a layer's lock file: ``name==version``."""
    lines = (source / "packages" / "lock" / f"{layer}.txt").read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def identity(source: Path, layer: str) -> str:
    """Eight hex digits that stand for a layer's versions, this Python and this processor."""
    text = "\n".join((*pinned(source, layer), PYTHON, platform.machine()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def stage(source: Path, wheels: Path, into: Path, names: list[str]) -> None:
    """Stage packages below ``into``, each in a folder of its name. Raises StagingError."""
    layouts = read_layouts(source)
    if unknown := set(names) - set(layouts):
        raise StagingError(f"packages/layout.toml has no {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pip = _build_environment(source, wheels, work / "build-venv")
        if any(layouts[name].modules for name in names):
            _install_own(source, pip, work)
        for name in names:
            layout, root = layouts[name], into / name
            if layout.libraries:
                target = work / name
                requirements = str(source / "packages" / "lock" / f"{layout.libraries}.txt")
                _run([*pip, "install", *_offline(wheels), "--target", str(target), "-r", requirements])
                _put_libraries(target, root, layout)
                if layout.libraries == "torch":
                    _require_torch_for_cpus(root / SITE, [into / each / SITE for each in names[: names.index(name)]])
            if layout.environment:
                _put_environment(work, root)
            _put_own(work / "own", root, layout)
            _put_files(source, root, layout)
            _compile(root)


def _require_torch_for_cpus(torch: Path, before: list[Path]) -> None:
    """That PyTorch in ``torch`` is built for CPUs, and can be imported where what it needs was staged ``before``."""
    try:
        cuda = cuda_of(torch)
    except (OSError, ValueError) as err:
        raise StagingError(f"the layer torch has no PyTorch that can be used: {err}") from err
    if cuda is not None:
        raise StagingError(
            f"PyTorch in the folder of wheels is built for CUDA {cuda}: put the wheel of its build for CPUs there "
            "(docs/admin/install.md)"
        )
    if libraries := [str(folder) for folder in before if folder.is_dir()]:
        program = "import sys, torch; sys.exit(torch.version.cuda)"
        _run(["env", f"PYTHONPATH={':'.join((*libraries, str(torch)))}", sys.executable, "-c", program])


def _offline(wheels: Path) -> list[str]:
    return ["--quiet", "--isolated", "--no-index", "--find-links", str(wheels), "--no-deps", "--no-compile"]


def _build_environment(source: Path, wheels: Path, folder: Path) -> list[str]:
    """A virtual environment that can build rlalloc's wheel; its pip's command. Its pip is the one of ensurepip."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", *_offline(wheels), "-r", str(source / "packages" / "lock" / "build.txt")])
    return pip


def _install_own(source: Path, pip: list[str], work: Path) -> None:
    """Install rlalloc's own Python packages into work/own."""
    wheel = work / "wheel"
    _run([*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheel), str(source)])
    (built,) = wheel.iterdir()
    _run([*pip, "install", "--quiet", "--no-deps", "--no-compile", "--target", str(work / "own"), str(built)])


def _put_libraries(target: Path, root: Path, layout: Layout) -> None:
    for pattern in layout.dropped:
        for path in sorted(target.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    for entry in sorted(target.iterdir()):
        if entry.name not in ("bin", "share", "include", "etc"):
            _move(entry, root / SITE / entry.name)


def _put_environment(work: Path, root: Path) -> None:
    """Python's own files, as ``python3 -m venv`` makes them, for where they will lie."""
    made = work / "environment"
    venv.create(made, with_pip=False, symlinks=True)
    (root / PREFIX / "bin").mkdir(parents=True, exist_ok=True)
    interpreter = Path("/usr/bin") / PYTHON
    for name in ("python", "python3", PYTHON):
        (root / PREFIX / "bin" / name).symlink_to(interpreter)
    lines = [f"home = {interpreter.parent}", "include-system-site-packages = false", f"executable = {interpreter}"]
    (root / PREFIX / "pyvenv.cfg").write_text("\n".join(lines) + "\n")


def _put_own(own: Path, root: Path, layout: Layout) -> None:
    for module in layout.modules:
        _move(own / module, root / SITE / module)
    if layout.modules and layout.modules[0] == "rlalloc":
        (notes,) = own.glob("rlalloc-*.dist-info")
        _move(notes, root / SITE / notes.name)
    for command in layout.commands:
        target = root / PREFIX / "bin" / command
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = (own / "bin" / command).read_text().splitlines(keepends=True)
        target.write_text("".join([f"#!/{PREFIX}/bin/python\n", *lines[1:]]))
        target.chmod(0o755)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)
    if target.name.endswith(".dist-info"):
        for name in _UNNEEDED:
            (target / name).unlink(missing_ok=True)


def _put_files(source: Path, root: Path, layout: Layout) -> None:
    for place, given in layout.files.items():
        for wanted in [given] if isinstance(given, str) else given:
            for path, installed in _matches(source, place, wanted):
                target = root / installed
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                target.chmod(layout.modes.get(installed, 0o755 if path.stat().st_mode & 0o100 else 0o644))
    for place, link in layout.links.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).symlink_to(link)


def _matches(source: Path, place: str, wanted: str) -> Iterator[tuple[Path, str]]:
    """The files of the project that ``wanted`` names, and where each is installed. Raises StagingError for none."""
    pattern, _, name = wanted.partition(" as ")
    found = sorted(path for path in source.glob(pattern) if path.is_file())
    if not found:
        raise StagingError(f"packages/layout.toml: there is no {pattern}")
    for path in found:
        yield path, f"{place}{name or path.name}" if place.endswith("/") else place


def _compile(root: Path) -> None:
    """Compile what Python will import: the services cannot write below /opt.

    The compiled files hold a hash of their source, not its time, which packages change.
    """
    site = root / SITE
    if site.is_dir():
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(site, quiet=2, stripdir=str(root), prependdir="/", invalidation_mode=mode, workers=0)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise StagingError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Stage what rlalloc's packages install.")
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--wheels", type=Path, help="a folder with all wheels; make wheels fills one")
    parser.add_argument("--into", type=Path, help="where the packages' folders are made")
    parser.add_argument("--identities", action="store_true")
    parser.add_argument("packages", nargs="*")
    given = parser.parse_args()
    if given.identities:
        for layer in ("controller", "torch", "trainer"):
            sys.stdout.write(f"{layer}={identity(given.source, layer)}\n")
        return
    if given.wheels is None or given.into is None or not given.packages:
        parser.error("--wheels, --into and a package are needed")
    try:
        stage(given.source.resolve(), given.wheels.resolve(), given.into.resolve(), given.packages)
    except StagingError as error:
        sys.exit(f"stage_packages: {error}")


if __name__ == "__main__":
    main()
