"""Bounds of a job, narrowed by what its LLM needs. Pure functions."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from rlalloc.job import Allocation, Bounds, JobClass
from rlalloc.llm.facts import Facts, facts_of_words
from rlalloc.llm.model_needs import makes_sense, memory_on

MODEL: Final = "model"
"""Who says so, where the model's memory or its parallel sizes raise the least count."""


def facts_of_job(words: Sequence[str], job_class: JobClass) -> Facts:
    """What the words of a script's tag tell of its LLM; the job's class where they do not tell the purpose."""
    facts = facts_of_words(words)
    if facts.purpose is None and job_class == "serve":
        return msgspec.structs.replace(facts, purpose="serve")
    return facts


def with_model_needs(
    bounds: Bounds, request: Allocation, facts: Facts, memory_gib: float | None, gpus_per_node: int
) -> Bounds:
    """Raise the least GPU count to what the model needs, and leave counts out that its parallel sizes rule out.

    Nothing is lowered or added, and the count that was submitted always stays. Where it has too little memory by our
    estimate, it is taken to be enough: counts that need more on each GPU are left out. Where its parallel sizes rule
    it out, the facts are not believed.
    ``memory_gib`` is that of one GPU, None where the type is unknown: then only parallel sizes count.
    """
    asked = request.gpus
    if asked in bounds.gpu_counts and not makes_sense(facts, asked, gpus_per_node):
        return bounds
    counts = tuple(count for count in bounds.gpu_counts if count == asked or makes_sense(facts, count, gpus_per_node))
    if memory_gib is not None and facts.architecture is not None:
        enough = memory_gib
        if asked in counts:
            enough = max(enough, _needed_gib(facts, asked, gpus_per_node))
        counts = tuple(count for count in counts if _needed_gib(facts, count, gpus_per_node) <= enough)
    if not counts or counts == bounds.gpu_counts:
        return bounds
    gpus = bounds.gpus
    if counts[0] > gpus.minimum:
        gpus = msgspec.structs.replace(gpus, minimum=counts[0], minimum_from=MODEL)
    return msgspec.structs.replace(bounds, gpus=gpus, gpu_counts=counts)


def _needed_gib(facts: Facts, gpus: int, gpus_per_node: int) -> float:
    memory = memory_on(facts, gpus, gpus_per_node)
    return math.inf if memory is None else memory.needed_gib
