"""What is assumed of jobs where a trace is silent. One struct, so that all of it can be read, printed and changed.

No published trace has both requests and needs of CPUs and memory, bounds, or speed-ups; docs/reference/workloads.md
lists what
each one lacks.
"""

from typing import Annotated, Final

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.job import JobClass

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class EndRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs end where the trace does not tell.

    The time factors stretch the recorded run time of a job that is drawn to end so: 1 where the trace holds jobs of
    every end, the ratio of mean GPU-times where it holds completed ones only.
    """

    failed: Share
    cancelled: Share
    failed_time_factor: float = 1.0
    cancelled_time_factor: float = 1.0


class ByClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number for each class of job."""

    train: float
    finetune: float
    serve: float

    def of(self, job_class: JobClass) -> float:
        """The number of one class."""
        return {"train": self.train, "finetune": self.finetune, "serve": self.serve}[job_class]


class Assumptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model that fills gaps. Pairs are the ends of a uniform range unless said otherwise."""

    shape: NodeShape = NodeShape(gpus=8, cpus=96, mem_mib=768_000)
    """A node, where the trace names none: what requests are cut to."""
    cpus_asked_per_gpu: tuple[int, ...] = (4, 4, 8, 8, 8, 16, 16, 32)
    """Each as likely. Kalos' jobs ask 12 to 15 with a tail to 120 (AcmeTrace); the spread is an assumption."""
    cpus_needed_per_gpu: tuple[float, float] = (1.0, 3.0)
    """1 for language models, 3 and more where images or audio are decoded (Synergy, OSDI 2022)."""
    memory_needed_share: tuple[float, float] = (0.05, 0.45)
    """Of a GPU's part of the node's memory; an assumption."""
    memory_over_asked: tuple[float, float] = (1.2, 1.5)
    """Asked over needed is the first plus an exponential of mean the second; an assumption."""
    limit_used: tuple[float, float] = (0.44, 0.45)
    """Run time over time limit: median and log-deviation of a log-normal, cut at 1/1.05 (the median from a prototype
    on Philly's workloads, the spread an assumption)."""
    progress_at_end: tuple[float, float] = (0.05, 1.0)
    """How far a failed or cancelled job had come; an assumption."""
    overrun: tuple[float, float] = (1.05, 3.0)
    """What a job killed by its time limit or for its memory would have taken, over what it had."""
    class_weights: ByClass = ByClass(train=0.5, finetune=0.35, serve=0.15)
    """An assumption."""
    speed_exponent_least: ByClass = ByClass(train=0.85, finetune=0.65, serve=0.9)
    speed_exponent_most: ByClass = ByClass(train=1.05, finetune=1.0, serve=1.05)
    """The measured curve is bert's (Pollux, OSDI 2021); small global batches scale worse; the figures are assumed."""
    moldable: Share = 0.8
    """Jobs that declare a range of GPUs: down to 1, 1/2 or 1/4 of the request and up to 1, 2 or 4 times, each as
    likely; an assumption."""
    repairable: Share = 0.8
    """Jobs that declare least CPUs and memory a GPU; an assumption."""
    task_per_gpu: Share = 0.3
    """Jobs that launch a task a GPU rather than a node; an assumption."""
    checkpointed: ByClass = ByClass(train=0.7, finetune=0.5, serve=0.0)
    """Jobs that can resume, an assumption; every 30 minutes and 60 s to restart (Pollux takes 30 s)."""
    users_per_account: int = 20
    """Where the trace has no users: so many an account, the k-th as busy as 1/k of the first."""
    ends: EndRates = EndRates(failed=0.0, cancelled=0.0)
    """Where the trace does not tell how jobs ended."""


CHECKPOINT_EVERY_S: Final = 1800.0
CHECKPOINT_RESTART_S: Final = 60.0
