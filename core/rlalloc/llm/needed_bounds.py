"""Bounds of a job, narrowed by what its LLM needs. Pure functions."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from rlalloc.bounds import CONSENT
from rlalloc.job import Allocation, Bounds
from rlalloc.llm.facts import Facts, Purpose, facts_of_words
from rlalloc.llm.model_needs import makes_sense, needed_gib, parallel_unit
from rlalloc.llm.script_options import FOLLOWS_GPUS
from rlalloc.scripts.script_reading import Purposes

MODEL: Final = "model"
"""Who says so, where the model's memory or its parallel sizes raise the least count."""
_MARGIN: Final = 1.15
"""Our estimates are within 15% of published figures (docs/results/llm-memory.md)."""
_LONGEST_ASSUMED: Final = 8192
"""Tokens of a sequence, where script and model do not say."""


def facts_of_job(words: Sequence[str], purposes: Purposes) -> tuple[Facts, ...]:
    """What the words of a script's tag tell of its LLMs: of one that trains and serves, of each."""
    does: tuple[tuple[bool, Purpose], ...] = ((purposes.trains, "train"), (purposes.serves, "serve"))
    return tuple(facts_of_words(words, purpose, beside=all(purposes)) for does_it, purpose in does if does_it)


def with_model_needs(
    bounds: Bounds,
    request: Allocation,
    programs: Sequence[Facts],
    memory_gib: float | None,
    gpus_per_node: int,
    *,
    fit_may_be_unknown: bool = True,
) -> Bounds:
    """Raise the least GPU count to what the models need, and leave counts out that their parallel sizes rule out.

    ``programs`` are what the script runs; a count has to be enough for each of them.
    Nothing is lowered or added, and the count that was submitted always stays. Where it has too little memory by our
    estimate, the script spreads its model in a way that we did not read: counts that need more on each GPU are left
    out, and fewer GPUs where the user has not declared them. Where its parallel sizes rule it out, the facts are not
    believed.
    ``memory_gib`` is that of one GPU, None where the type is unknown: then only parallel sizes count.
    ``fit_may_be_unknown``: fewer GPUs are left only if they are known to be enough, however the model is spread.
    """
    if bounds.gpus.minimum_from == CONSENT:
        for facts in programs:
            bounds = _where_known(bounds, request, facts, memory_gib, gpus_per_node, fit_may_be_unknown)
    declared = bounds.gpus.minimum_from == "script"
    counts = bounds.gpu_counts
    for facts in programs:
        counts = _enough(counts, request.gpus, facts, memory_gib, gpus_per_node, declared=declared)
    if not counts or counts == bounds.gpu_counts:
        return bounds
    gpus = bounds.gpus
    if counts[0] > gpus.minimum:
        gpus = msgspec.structs.replace(gpus, minimum=counts[0], minimum_from=MODEL)
    return msgspec.structs.replace(bounds, gpus=gpus, gpu_counts=counts)


def _enough(
    counts: tuple[int, ...],
    asked: int,
    facts: Facts,
    memory_gib: float | None,
    gpus_per_node: int,
    *,
    declared: bool,
) -> tuple[int, ...]:
    """The counts that are enough for one program."""
    if asked in counts and not makes_sense(facts, asked, gpus_per_node):
        return counts
    counts = tuple(count for count in counts if count == asked or makes_sense(facts, count, gpus_per_node))
    if memory_gib is None or facts.architecture is None:
        return counts
    enough, least = memory_gib, 1
    if asked in counts and (needed := needed_gib(facts, asked, gpus_per_node)) > enough:
        enough, least = needed, 1 if declared else asked
    return tuple(count for count in counts if count >= least and needed_gib(facts, count, gpus_per_node) <= enough)


def _where_known(
    bounds: Bounds,
    request: Allocation,
    facts: Facts,
    memory_gib: float | None,
    gpus_per_node: int,
    fit_may_be_unknown: bool,  # noqa: FBT001 (handed through)
) -> Bounds:
    """The bounds of a script that consented, without counts of which too little is known."""
    asked = request.gpus
    follows = facts.tensor_parallel == FOLLOWS_GPUS
    if follows and (facts.architecture is None or not facts.architecture.exact):
        # Heads and widths have to be divisible by the count.
        return _only(bounds, (asked,), "its tensor parallelism follows the GPUs, and rlalloc does not know its model")
    if fit_may_be_unknown:
        return bounds
    counts = tuple(
        count
        for count in bounds.gpu_counts
        if count >= asked or _surely_fits(facts, count, memory_gib, gpus_per_node)
    )
    return _only(bounds, counts, "rlalloc does not know that its model fits on fewer GPUs")


def _only(bounds: Bounds, counts: tuple[int, ...], why: str) -> Bounds:
    if counts == bounds.gpu_counts:
        return bounds
    gpus = msgspec.structs.replace(bounds.gpus, minimum=counts[0], maximum=counts[-1])
    if len(counts) == 1:
        gpus = msgspec.structs.replace(gpus, minimum_from="request", maximum_from="request")
    return msgspec.structs.replace(bounds, gpus=gpus, gpu_counts=counts, script=f"{bounds.script}; {why}")


def _surely_fits(facts: Facts, count: int, memory_gib: float | None, gpus_per_node: int) -> bool:
    """Whether a whole copy of the model fits, with what the script leaves open at its worst.

    The request may be enough only because the program shards, or because it divides its global batch among more GPUs:
    on fewer, it may accumulate gradients. How much memory further models need, such as a teacher, is not known.
    """
    if memory_gib is None or facts.architecture is None or facts.other_models:
        return False
    micro = facts.micro_batch
    if micro is None:
        if facts.global_batch is None:
            return False
        micro = math.ceil(facts.global_batch * parallel_unit(facts) / count)
    longest = min(facts.architecture.positions or _LONGEST_ASSUMED, _LONGEST_ASSUMED)
    whole = msgspec.structs.replace(
        facts,
        zero_stage=0,
        distributed_optimizer=False,
        micro_batch=micro,
        global_batch=None,
        accumulation=2,
        sequence=facts.sequence or longest,
    )
    return needed_gib(whole, count, gpus_per_node) * _MARGIN <= memory_gib
