"""What a changed configuration file can change in a running daemon. Pure functions."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rlalloc.config import Config

NEEDS_RESTART: Final = (
    "runtime_directory",
    "slurm.backend",
    "slurm.will_run",
    "store.url",
    "store.key_file",
    "history.pseudonymize",
    "history.key_file",
    "policy.directory",
)
"""Keys that a reload does not take up: what the daemon has open hangs on them."""


def reloaded(old: Config, new: Config) -> tuple[Config, tuple[str, ...]]:
    """Return the new configuration with the old values of keys that need a restart, and which of those differ."""
    kept = tuple(key for key in NEEDS_RESTART if _value(old, key.split(".")) != _value(new, key.split(".")))
    for key in kept:
        new = _replace(new, key.split("."), _value(old, key.split(".")))
    return new, kept


def _value(struct: Any, path: Sequence[str]) -> Any:
    for name in path:
        struct = getattr(struct, name)
    return struct


def _replace(struct: Any, path: Sequence[str], value: Any) -> Any:
    name, *rest = path
    return msgspec.structs.replace(struct, **{name: _replace(getattr(struct, name), rest, value) if rest else value})
