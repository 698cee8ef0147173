"""Compilation by numba, with a cache that notices when any module of the engine has changed.

numba's own cache checks only the file of the cached function: a caller would keep a callee's old code. Therefore each
version of the sources has its own cache folder. Where none can be written, every process compiles again.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from numba.core import config
from numba.core.registry import CPUDispatcher

import rlalloc.run_time
import rlalloc.speed.measured_curves
import rlalloc.urgency
from rlalloc.system.shared_files import others_can_replace

Compiled = TypeVar("Compiled", bound=Callable[..., object])

_HERE: Final = Path(__file__).parent
_CACHE: Final = "CACHE_DIR"


class _WithoutWrapper(CPUDispatcher):
    """A compiled function that Python cannot call. Without this check, numba would jump to address 0."""

    def __call__(self, *_arguments: object, **_named: object) -> object:
        raise TypeError(f"{self} is for compiled code alone: decorate it with compiled_for_python")


def compiled(function: Compiled) -> Compiled:
    """Compile ``function`` for callers that are compiled themselves; it must not touch Python objects.

    Wrappers for calls from Python unpack all of a World: with them compilation takes half as long again.
    """
    found = _compiled(function, no_cpython_wrapper=True)
    if isinstance(found, CPUDispatcher):  # else NUMBA_DISABLE_JIT is set
        found.__class__ = _WithoutWrapper
    return cast(Compiled, found)


def compiled_for_python(function: Compiled) -> Compiled:
    """Likewise, for callers in Python, too; compiled on its first call."""
    return cast(Compiled, _compiled(function, no_cpython_wrapper=False))


def _compiled(function: Compiled, *, no_cpython_wrapper: bool) -> object:
    # numba reads the folder when it decorates, and offers no other way to choose one.
    previous = getattr(config, _CACHE)
    setattr(config, _CACHE, str(_FOLDER or ""))
    wrappers: dict[str, Any] = {"no_cfunc_wrapper": True, "no_cpython_wrapper": no_cpython_wrapper}
    try:
        return numba.njit(cache=_FOLDER is not None, error_model="numpy", nogil=True, **wrappers)(function)
    finally:
        setattr(config, _CACHE, previous)


def _folder() -> Path | None:
    """Where compiled code is kept: beside the sources, else in the user's cache; never where others may put things.

    Like .pyc files, what is loaded from there is executed, so it is as trustworthy as the folder.
    """
    # What is compiled, too, and of which constants.
    modules = (rlalloc.run_time.__file__, rlalloc.speed.measured_curves.__file__, rlalloc.urgency.__file__)
    sources = b"".join(path.read_bytes() for path in (*sorted(_HERE.glob("*.py")), *map(Path, modules)))
    name = f"engine-{hashlib.sha256(sources).hexdigest()[:12]}"
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    for parent in (_HERE / "__pycache__", user_cache / "rlalloc"):
        try:
            if not (parent / name).is_dir():
                _forget_others(parent)
                _make_own(parent / name)
        except OSError:
            continue
        if os.access(parent / name, os.W_OK) and others_can_replace(parent / name) is None:
            return parent / name
    return None


def _make_own(folder: Path) -> None:
    """Make a folder in which nobody else can write, whatever the umask. Raises OSError."""
    before = os.umask(0o022)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)


def _forget_others(parent: Path) -> None:
    """Remove what earlier versions of the sources left; a process that still runs them compiles again."""
    for folder in parent.glob("engine-*"):
        shutil.rmtree(folder, ignore_errors=True)


_FOLDER: Final = _folder()
