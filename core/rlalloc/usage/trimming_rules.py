"""The section ``trimming`` of the configuration."""

from typing import Annotated, Final

import msgspec


class TrimmingSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far memory and CPUs may be trimmed to what like jobs used (docs/explanation/past-usage.md).

    A floor is the ``quantile`` of what like jobs used, and a margin above it: at least ``memory_margin`` or
    ``cpu_margin``, and as much as was needed so that at most the part ``exceeded`` (of CPUs, ``cpus_exceeded``: a job
    beyond its CPUs runs longer and is not killed) of the past jobs that it would have trimmed went beyond it. Groups
    of fewer than ``least_jobs`` like jobs have margins of their own. With too few jobs to learn the margin from,
    nothing is trimmed.
    """

    quantile: Annotated[float, msgspec.Meta(ge=0.5, lt=1)] = 0.99
    memory_margin: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.1
    cpu_margin: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.25
    exceeded: Annotated[float, msgspec.Meta(gt=0, le=0.2)] = 0.003
    cpus_exceeded: Annotated[float, msgspec.Meta(gt=0, le=0.2)] = 0.01
    least_jobs: Annotated[int, msgspec.Meta(ge=2, le=20)] = 5


DEFAULT_RULES: Final = TrimmingSection()
