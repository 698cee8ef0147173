"""From a request, the user's directives and the site's rule to the bounds of a job. Pure functions.

A script declares what the job can live with in comment lines that sbatch ignores::

    #RLALLOC gpus=1-8 cpus-per-gpu=2-8 mem-per-gpu=8G-64G

Without a declared range the GPU count is fixed (invariant 2), unless the site's rule has a range for all jobs, or the
script consents (``rlalloc.scripts.consent``) and the rule has one for such scripts. The request is the maximum of
CPUs and memory.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec

from rlalloc.counted import counted
from rlalloc.errors import DirectiveError
from rlalloc.job import JOB_CLASSES, Allocation, Bounds, JobClass, Range
from rlalloc.scripts.consent import NO_CONSENT, Consent

_MEMORY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)", re.IGNORECASE)
_MIB_PER_UNIT: Final = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0}
_LEAST_NUMBER: Final = 0.001
_LARGEST_NUMBER: Final = 1_000_000_000
_MOST_NODES_LISTED: Final = 1024
"""More whole nodes are not among the workable GPU counts, and of many nodes not each number: everything that is asked
of a job is asked of each count."""
_MOST_MISTAKES_NAMED: Final = 5
LEAST_DECLARED_MIB_PER_GPU: Final = 1024.0
"""A script cannot declare less memory per GPU than this, where the site's rule has no floor of its own."""
CONSENT: Final = "consent"
"""Who says so, where a script that takes its size from Slurm lets the rule's range hold."""
Number = TypeVar("Number", int, float)
Factor = Annotated[float, msgspec.Meta(gt=0, le=1024)]
Floor = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Directives(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the ``#RLALLOC`` lines of a script say; None where they are silent."""

    gpus: tuple[int, int] | None = None
    gpu_counts: tuple[int, ...] | None = None
    cpus_per_gpu: tuple[float, float] | None = None
    mem_mib_per_gpu: tuple[float, float] | None = None
    gpu_multiple: int = 1
    task_per_gpu: bool | None = None
    job_class: JobClass | None = None


class MoldableBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What jobs may get whose script takes its size from Slurm or from the machine.

    ``gpus_factor`` None keeps the request: a rule resizes no such job unless it says so. ``batch_may_change`` lets
    jobs change, too, that state batches per GPU only, or none: their global batch may follow the count.
    ``fit_may_be_unknown`` lets jobs have fewer GPUs that do not show that their model fits on them
    (``rlalloc.llm.needed_bounds``).
    """

    gpus_factor: tuple[Factor, Factor] | None = None
    batch_may_change: bool = False
    fit_may_be_unknown: bool = False


class SiteBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site rule's floors and ranges.

    A job whose script says nothing may get as little as the floors. A script cannot declare less memory than the
    floor of memory, or ``LEAST_DECLARED_MIB_PER_GPU`` where there is none. ``gpus_factor`` lets the site itself
    declare jobs moldable: [0.5, 2] means half to twice the request. ``moldable`` is for scripts that consent.
    """

    min_cpus_per_gpu: Floor | None = None
    min_mem_mib_per_gpu: Floor | None = None
    gpus_factor: tuple[Factor, Factor] | None = None
    moldable: MoldableBounds = MoldableBounds()

    @property
    def of_declared_counts(self) -> "SiteBounds":
        """The same for jobs whose count of devices only their users may let change."""
        return msgspec.structs.replace(self, gpus_factor=None, moldable=MoldableBounds())


class NodeShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one of the nodes that a job may use can give to it; the largest kind where there are several."""

    gpus: int
    cpus: int
    mem_mib: int

    def holds(self, size: Allocation) -> bool:
        """Whether it can give a node's part of a size."""
        return (
            size.gpus_per_node <= self.gpus
            and size.cpus_per_node <= self.cpus
            and size.mem_mib_per_node <= self.mem_mib
        )


def parse_directives(text: str) -> Directives:
    """Read ``key=value`` words, separated by blanks, as in ``gpus=1-8 launch=srun``.

    Raises DirectiveError with each wrong word, what was found and what is allowed.
    """
    directives, mistakes = read_directives(text)
    if mistakes:
        raise DirectiveError("; ".join(mistakes))
    return directives


def read_directives(text: str) -> tuple[Directives, tuple[str, ...]]:
    """The same without the wrong words, and what is wrong with those, for people."""
    found: dict[str, object] = {}
    mistakes: list[str] = []
    for word in text.split():
        try:
            found.update(_read_word(word))
        except DirectiveError as err:
            mistakes.append(str(err))
    if len(mistakes) > _MOST_MISTAKES_NAMED:
        mistakes[_MOST_MISTAKES_NAMED:] = ["there are more mistakes"]
    return msgspec.convert(found, Directives), tuple(mistakes)


def bounds_for(
    request: Allocation,
    directives: Directives,
    site: SiteBounds,
    shape: NodeShape,
    partition_gpus: int | None = None,
    consent: Consent = NO_CONSENT,
) -> Bounds:
    """Say what a job may get: never outside what its user and the site said, nor what a node can hold.

    ``consent`` is what its script shows. A user's range of GPUs holds whatever that is. So does the rule's own,
    except that no node gets fewer GPUs if the script names the CPUs or memory of its steps. If it states its workers,
    a floor of the site does not lower the CPUs.
    ``partition_gpus`` are the GPUs of all nodes of the partition, where they are known: no count is above them but
    the one that was submitted. Raises DirectiveError if no workable GPU count remains.
    """
    gpus = _gpu_range(request, directives, site, shape, consent)
    if partition_gpus is not None:
        gpus = _within_partition(gpus, max(partition_gpus, request.gpus))
    counts = _workable_counts(request, directives, gpus, shape)
    signs = _signs_of(consent, request, site)
    if directives.gpus is None:
        if gpus.minimum < request.gpus and (consent.cpus_fixed or consent.memory_fixed):
            signs.append("its steps may need the CPUs or memory of the request: no fewer GPUs per node")
        by_consent = functools.partial(consent.allows, any_batch=site.moldable.batch_may_change)
        suits = by_consent if gpus.minimum_from == CONSENT else consent.keeps_steps
        counts = tuple(
            count for count in counts if count == request.gpus or suits(_size_of(count, request, shape), request)
        )
        gpus = msgspec.structs.replace(gpus, minimum=counts[0], maximum=counts[-1])
    return Bounds(
        gpus=gpus,
        cpus_per_gpu=_per_gpu_range(
            request.cpus_per_gpu,
            directives.cpus_per_gpu,
            None if consent.cpus_fixed or consent.states_workers else site.min_cpus_per_gpu,
            shape.cpus / max(1, shape.gpus),
        ),
        mem_mib_per_gpu=_per_gpu_range(
            request.mem_mib_per_gpu,
            directives.mem_mib_per_gpu,
            None if consent.memory_fixed and not directives.mem_mib_per_gpu else site.min_mem_mib_per_gpu,
            shape.mem_mib / max(1, shape.gpus),
            least_declared=LEAST_DECLARED_MIB_PER_GPU,
        ),
        gpu_counts=counts,
        task_per_gpu=task_per_gpu(request, directives),
        script="; ".join(signs),
    )


def no_count_in(gpus: Range, why: str) -> DirectiveError:
    """The error that tells the user why a range contains no possible GPU count."""
    return DirectiveError(f"#RLALLOC gpus={gpus.minimum:.0f}-{gpus.maximum:.0f}: {why}")


def _gpu_range(
    request: Allocation, directives: Directives, site: SiteBounds, shape: NodeShape, consent: Consent
) -> Range:
    if directives.gpus is not None:
        return Range(*directives.gpus, minimum_from="script", maximum_from="script")
    if site.gpus_factor is not None:
        return _factor_range(request.gpus, site.gpus_factor, "site")
    moldable = site.moldable
    if moldable.gpus_factor is None or not consent.moldable:
        return _as_requested(request.gpus)
    if (consent.batch_sign and not moldable.batch_may_change) or _stays_on_one_node(consent, request):
        return _as_requested(request.gpus)
    allowed = _factor_range(request.gpus, moldable.gpus_factor, CONSENT)
    least = request.gpus if consent.shards else allowed.minimum
    most = max(request.gpus, shape.gpus) if consent.one_node else allowed.maximum
    return msgspec.structs.replace(allowed, minimum=least, maximum=min(most, allowed.maximum))


def _stays_on_one_node(consent: Consent, request: Allocation) -> bool:
    return consent.one_node and request.nodes > 1


def _signs_of(consent: Consent, request: Allocation, site: SiteBounds) -> list[str]:
    """What the script shows, and why its count stays all the same where it does."""
    signs = [consent.sign]
    if consent.moldable and consent.batch_sign and not site.moldable.batch_may_change:
        signs.append(consent.batch_sign)
    if consent.moldable and _stays_on_one_node(consent, request):
        signs.append("its launcher stays on one node")
    return signs


def _size_of(count: int, request: Allocation, shape: NodeShape) -> Allocation:
    """The request with another number of GPUs, as it lies on the partition's nodes."""
    per_node = min(count, shape.gpus)
    return msgspec.structs.replace(request, nodes=max(1, count // max(1, per_node)), gpus_per_node=per_node)


def _factor_range(requested: int, factor: tuple[float, float], said_by: str) -> Range:
    low, high = factor
    return Range(max(1, round(requested * min(low, 1.0))), round(requested * max(high, 1.0)), said_by, said_by)


def _within_partition(gpus: Range, most: int) -> Range:
    """Cut a range to what the partition can hold. Raises DirectiveError if it begins above that."""
    if gpus.minimum > most:
        raise no_count_in(gpus, f"its partition has {counted(most, 'GPU')}; widen the range")
    if gpus.maximum <= most:
        return gpus
    return Range(gpus.minimum, most, gpus.minimum_from, "partition")


def task_per_gpu(request: Allocation, directives: Directives) -> bool:
    """Whether srun starts a task for each GPU, by the user's word or by the request."""
    if directives.task_per_gpu is not None:
        return directives.task_per_gpu
    return request.tasks_per_node == request.gpus_per_node > 1


def _workable_counts(request: Allocation, directives: Directives, gpus: Range, shape: NodeShape) -> tuple[int, ...]:
    """List powers of two inside a node, whole nodes beyond it, and what was named; in ascending order."""
    if directives.gpu_counts is not None:
        candidates = set(directives.gpu_counts)
    else:
        in_node = {1 << power for power in range(shape.gpus.bit_length()) if 1 << power <= shape.gpus}
        most_nodes = min(_MOST_NODES_LISTED, int(gpus.maximum) // max(1, shape.gpus))
        whole_nodes = {shape.gpus * nodes for nodes in range(1, most_nodes + 1) if _is_listed(nodes)}
        candidates = in_node | whole_nodes | {int(gpus.minimum), int(gpus.maximum)}
    workable = {
        count
        for count in candidates
        if gpus.minimum <= count <= gpus.maximum
        and count % directives.gpu_multiple == 0
        and (count <= shape.gpus or count % shape.gpus == 0)
        and _tasks_can_share(min(count, shape.gpus), request, directives)
    }
    if gpus.minimum <= request.gpus <= gpus.maximum:
        workable.add(request.gpus)  # what was submitted always works
    if not workable:
        raise no_count_in(
            gpus,
            f"no count in it is a multiple of {directives.gpu_multiple}, fits nodes of {counted(shape.gpus, 'GPU')} "
            f"and can be shared by the tasks of a node ({request.tasks_per_node}); widen the range",
        )
    return tuple(sorted(workable))


def _is_listed(nodes: int) -> bool:
    """Each count up to 64, each second one up to 128, each fourth up to 256, and so on."""
    return nodes % (1 << max(0, nodes.bit_length() - 6)) == 0


def _tasks_can_share(gpus_per_node: int, request: Allocation, directives: Directives) -> bool:
    """Whether each task of a node gets as many GPUs as the others, and none has to share one that had its own."""
    tasks = request.tasks_per_node
    if tasks <= 1 or task_per_gpu(request, directives):
        return True
    shared_as_submitted = tasks > request.gpus_per_node > 0 == tasks % request.gpus_per_node
    return gpus_per_node % tasks == 0 or (shared_as_submitted and tasks % gpus_per_node == 0)


def _per_gpu_range(
    requested: float,
    declared: tuple[float, float] | None,
    site_floor: float | None,
    node_share: float,
    *,
    least_declared: float = 0.0,
) -> Range:
    """Let a declared range win; else the request is the ceiling and the site's floor, if any, the floor.

    ``least_declared`` is what a script may declare at least; 0: anything. No floor is above the request.
    """
    if declared is not None:
        low, high = declared
        ceiling = max(requested, node_share)
        allowed = Range(min(low, ceiling), min(high, ceiling), "script", "script" if high <= ceiling else "node")
        if least_declared == 0.0:
            return allowed
        floor = min(requested, least_declared if site_floor is None else site_floor)
        return _raised(allowed, floor, "default" if site_floor is None else "site")
    if site_floor is not None and site_floor < requested:
        return Range(site_floor, requested, "site", "request")
    return _as_requested(requested)


def _as_requested(amount: float) -> Range:
    return Range(amount, amount, "request", "request")


def rigid_bounds(request: Allocation) -> Bounds:
    """Return the bounds of a job that may get nothing but what it asked for."""
    return Bounds(
        gpus=_as_requested(request.gpus),
        cpus_per_gpu=_as_requested(request.cpus_per_gpu),
        mem_mib_per_gpu=_as_requested(request.mem_mib_per_gpu),
        gpu_counts=(request.gpus,),
        task_per_gpu=False,
    )


def _raised(bound: Range, floor: float, floor_from: str) -> Range:
    """Raise both ends of a range to ``floor``, where they are below it."""
    if bound.minimum >= floor:
        return bound
    if bound.maximum >= floor:
        return Range(floor, bound.maximum, floor_from, bound.maximum_from)
    return Range(floor, floor, floor_from, floor_from)


def _read_word(word: str) -> dict[str, object]:
    key, separator, value = word.partition("=")
    reader = _READERS.get(key)
    if reader is None or not separator:
        raise DirectiveError(f"#RLALLOC {word!r}: write key=value; the keys are {', '.join(_READERS)}")
    return reader(value)


def _read_gpus(value: str) -> dict[str, object]:
    if "," in value:
        counts = tuple(sorted({_integer("gpus", part) for part in value.split(",")}))
        return {"gpu_counts": counts, "gpus": (counts[0], counts[-1])}
    return {"gpus": _range("gpus", value, _integer)}


def _read_launch(value: str) -> dict[str, object]:
    if value not in ("torchrun", "srun"):
        raise DirectiveError(f"#RLALLOC launch={value}: write torchrun (a task per node) or srun (a task per GPU)")
    return {"task_per_gpu": value == "srun"}


def _read_class(value: str) -> dict[str, object]:
    if value not in JOB_CLASSES:
        raise DirectiveError(f"#RLALLOC class={value}: write one of {', '.join(JOB_CLASSES)}")
    return {"job_class": value}


def _range(key: str, text: str, read: Callable[[str, str], Number]) -> tuple[Number, Number]:
    """Read ``2-8``, or ``4`` for 4-4."""
    first, _, second = text.partition("-")
    low, high = read(key, first), read(key, second or first)
    if low > high:
        raise DirectiveError(f"#RLALLOC {key}={text}: the first number must not be above the second")
    return low, high


def _integer(key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _LARGEST_NUMBER:
        raise DirectiveError(
            f"#RLALLOC {key}: {text!r} is not a whole number of at least 1, and at most a billion, as in {key}=1-8"
        )
    return int(text)


def _number(key: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not _LEAST_NUMBER <= float(text) <= _LARGEST_NUMBER:
        raise DirectiveError(
            f"#RLALLOC {key}: {text!r} is not a number of at least {_LEAST_NUMBER} and at most a billion, as in "
            f"{key}=2-8"
        )
    return float(text)


def _memory(key: str, text: str) -> float:
    match = _MEMORY.fullmatch(text)
    if match is None or not _LEAST_NUMBER <= float(match[1]) <= _LARGEST_NUMBER:
        raise DirectiveError(f"#RLALLOC {key}: {text!r} is not a size, as in {key}=8G-64G (K, M, G or T)")
    return float(match[1]) * _MIB_PER_UNIT[match[2].upper()]


_READERS: Final[Mapping[str, Callable[[str], dict[str, object]]]] = {
    "gpus": _read_gpus,
    "cpus-per-gpu": lambda value: {"cpus_per_gpu": _range("cpus-per-gpu", value, _number)},
    "mem-per-gpu": lambda value: {"mem_mib_per_gpu": _range("mem-per-gpu", value, _memory)},
    "gpu-multiple": lambda value: {"gpu_multiple": _integer("gpu-multiple", value)},
    "launch": _read_launch,
    "class": _read_class,
}
