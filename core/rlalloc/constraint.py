"""What a job's ``--constraint`` asks of a node's features, as far as rlalloc reads it. Pure functions."""

import functools
import re
from collections.abc import Set as AbstractSet
from typing import Final

_NAME: Final = r"[^&|,*()\[\]]+"
_SIMPLE: Final = re.compile(rf"{_NAME}(?:(?:[&,]{_NAME})*|(?:\|{_NAME})*)")


@functools.lru_cache(maxsize=4096)
def is_simple(constraint: str) -> bool:
    """Whether a constraint is features of which a node must have all (``a&b``), or any (``a|b``), or is empty.

    Kept: most jobs of a site ask for the same.
    """
    return not constraint or _SIMPLE.fullmatch(constraint) is not None


def has_features(features: AbstractSet[str], constraint: str) -> bool:
    """Whether a node with these features meets a simple constraint."""
    if "|" in constraint:
        return any(name.strip() in features for name in constraint.split("|"))
    return all(name.strip() in features for name in re.split("[&,]", constraint) if name)
