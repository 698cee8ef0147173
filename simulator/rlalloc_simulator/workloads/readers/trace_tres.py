"""What sacct's columns say beyond a TRES string's counts (rlalloc.tres)."""

from collections.abc import Mapping

from rlalloc.tres import gpus_of


def gpus_and_type(tres: Mapping[str, float]) -> tuple[int, str]:
    """GPUs of all types in a parsed TRES string, and the type if there is one alone."""
    types = [name.removeprefix("gres/gpu:") for name in tres if name.startswith("gres/gpu:")]
    return gpus_of(tres), types[0] if len(types) == 1 else ""
