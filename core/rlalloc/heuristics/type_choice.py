"""Which type of GPU a job gets that names none, and that Slurm may start on GPUs of several types.

Type and count are picked together, by what each costs (``known_gain``) over what the job costs without a type. A
policy that is not known gain says which counts: the ones that it answers on all nodes and on the type's. A type's
speed-up counts with its lower bound, against the types on which Slurm may start the job as submitted, and has to save
LEAST_GAIN of the run time.

What a job takes from others that may run on several types is the same on each type: a GPU that is twice as fast is
held for half as long, and is worth twice as much. Those that may run on one type only lose the job's part of that
type's GPUs, if it gets this type.

A type counts only where the job can start at once. Any other job Slurm may start on the first GPUs that are free,
whatever their type.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from rlalloc.allocation import gpus_for, without_limit
from rlalloc.heuristics.known_gain import COMING, LEAST_GAIN, counted_slowdowns, known_costs_s
from rlalloc.heuristics.workable_sizes import sizes_with_memory
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.speed.type_speeds import SpeedUp
from rlalloc.view import ClusterView, mean_as_requested_s

_NOBODY: Final = np.empty((0, 2))


class Offered(NamedTuple):
    """A job on the nodes of a view."""

    job: JobView
    view: ClusterView


class TypeChoice(NamedTuple):
    """A type, how much faster a job runs there than where Slurm would start it, and the shares that it gets there."""

    name: str
    speed_up: SpeedUp
    shares: Shares


def chosen_type(
    plain: Offered,
    answered: Allocation,
    typed: Mapping[str, Offered],
    allowed: frozenset[str],
    answers: Mapping[str, Shares] | None,
) -> TypeChoice | None:
    """The type that surely pays for a job; None if there is none, or if too little is known.

    ``plain`` is the job on all nodes that it may use, and ``answered`` the size that the policy gives it there.
    ``typed`` has it on those with GPUs of each type there; of these, ``allowed`` may be chosen. ``answers`` is what
    the policy answers on the nodes of each type, as far as it was asked: the count answered there may be chosen, or
    the one of ``answered``. It is None if the policy answers as known gain does: then any count may be chosen.
    """
    speeds = plain.view.type_speeds
    if len(typed) < 2 or not all(map(speeds.knows, typed)):
        return None
    starts_on = _where_it_starts(answered, typed)
    only = {name: _waiting_only_for(name, plain.view, typed) for name in typed}
    anywhere = dataclasses.replace(plain.view, queued=_NOBODY, behind=max(0, plain.view.crowd - sum(only.values())))
    (plain_s,) = known_costs_s(plain.job, (answered,), anywhere, plain.job.speed)
    best, least_s = None, math.inf
    for name in sorted(allowed & typed.keys()):
        job, view = typed[name]
        faster = speeds.speed_up(name, starts_on)
        if 1.0 / faster.at_least > 1.0 - LEAST_GAIN:
            continue
        sizes = sizes_with_memory(job.request, job.bounds, view.shape)
        others = ((anywhere, anywhere.crowd + COMING), (view, only[name] / faster.at_least))
        may_get = {answered.gpus}
        if answers is not None and name in answers:
            may_get.add(gpus_for(answers[name].gpu, job.bounds))
        costs_s = {size.gpus: _cost_s(job, size, faster, others) for size in sizes.allocations}
        same_s = costs_s.get(answered.gpus, math.inf)
        for count, shares, size in zip(*sizes, strict=True):
            limit_s = plain_s
            if count != answered.gpus:  # it also has to pay where Slurm would start the job on this type anyway
                is_answered = answers is None or count in may_get
                limit_s = min(plain_s, same_s) * (1.0 - LEAST_GAIN) if is_answered else -math.inf
            if costs_s[count] < min(least_s, limit_s) and view.fits_now(size):
                best, least_s = TypeChoice(name, faster, shares), costs_s[count]
    return best


def _where_it_starts(size: Allocation, typed: Mapping[str, Offered]) -> dict[str, float]:
    """The types of GPU on which Slurm may start a size first, each with the number of nodes that have room for it.

    Where not all of it has room now, the types on which it would start first, with all of their GPUs.
    """
    needs = np.array((size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node))
    room = {name: int((each.view.free >= needs).all(axis=1).sum()) for name, each in typed.items()}
    if sum(room.values()) >= size.nodes:
        return {name: float(nodes) for name, nodes in room.items() if nodes}
    starts_s = {name: each.view.freed_after_s((size,))[0] for name, each in typed.items()}
    first_s = min(starts_s.values())
    return {name: float(typed[name].view.totals[0]) for name, start_s in starts_s.items() if start_s == first_s}


def _waiting_only_for(name: str, everywhere: ClusterView, typed: Mapping[str, Offered]) -> int:
    """How many of the others that wait may run on GPUs of this type only: they wait for none of another."""
    elsewhere = max(each.view.crowd for other, each in typed.items() if other != name)
    return max(0, min(typed[name].view.crowd, everywhere.crowd - elsewhere))


def _cost_s(job: JobView, size: Allocation, faster: SpeedUp, others: Sequence[tuple[ClusterView, float]]) -> float:
    """What a size that starts at once costs the job and the others, with the lower bound of the type's speed-up.

    ``others`` has how many lose the part of the nodes of a view that it takes.
    """
    (slowdown,) = counted_slowdowns(without_limit(job.request), (without_limit(size),), job.speed or PRIOR_BELIEF)
    taken = sum(view.dominant_share(size) * waiting for view, waiting in others)
    return mean_as_requested_s(job) * slowdown * (1.0 / faster.at_least + taken)
