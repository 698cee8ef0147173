"""May a job's GPU count change without a ``#RLALLOC`` line? What its script shows, judged by the site's table.

A script whose size comes from Slurm or from the machine is moldable. One that states a count, or one that nobody can
read, is rigid, and rigid wins. The submit plugin collects words (``script_words``); this module judges them.
A global batch is what we may not change: a script has to state it, or to compute its batches from the GPUs that it
has. What is not known makes a job change less: of a script that does not say how its batch is divided, only counts
that divide the request are left.
"""

from collections.abc import Collection
from math import prod
from typing import Final

import msgspec

from rlalloc.job import Allocation, JobClass
from rlalloc.scripts.script_reading import Batch, Reading
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.scripts.script_sizes import formula_value


class Consent(msgspec.Struct, frozen=True):
    """What a script allows. ``sign`` says why, for people.

    ``batch_sign`` says why another count changes the global batch, or may; empty if it does not. ``batch`` is in
    samples and steps. ``one_node``: the launcher as written stays on one node. ``nodes``: the least and most that an
    elastic launch can have. ``parallel`` is the product of tensor, pipeline and context parallelism, ``experts`` that
    of the experts' ranks. ``shards``: the model is spread over the GPUs, so that fewer may not hold it.
    ``cpus_fixed`` and ``memory_fixed``: its own srun names them, or it binds its processes to CPUs by number.
    ``states_workers``: it names a number of worker processes or threads.
    """

    moldable: bool = False
    sign: str = ""
    batch_sign: str = ""
    batch: Batch = Batch()
    one_node: bool = True
    nodes: tuple[int, int] | None = None
    parallel: int = 1
    experts: int = 1
    shards: bool = False
    task_per_gpu: bool = False
    cpus_fixed: bool = False
    memory_fixed: bool = False
    states_workers: bool = False

    def keeps_steps(self, size: Allocation, request: Allocation) -> bool:
        """Whether its steps get the CPUs and memory that they name: fewer GPUs on a node bring less of both."""
        return size.gpus_per_node >= request.gpus_per_node or not (self.cpus_fixed or self.memory_fixed)

    def allows(self, size: Allocation, request: Allocation, *, any_batch: bool) -> bool:
        """Whether a size leaves steps, parallelism and global batch as they are.

        ``any_batch``: the batch may change.
        """
        if not self.keeps_steps(size, request):
            return False
        if size.gpus % (self.parallel * self.experts):
            return False
        if self.nodes is not None and not self.nodes[0] <= size.nodes <= self.nodes[1]:
            return False
        if self.batch.whole:
            return self._divides(size, request)
        if any_batch or not self.batch.formulas:
            return any_batch or not self.batch_sign
        return self._samples(size) == self._samples(request) is not None

    def _divides(self, size: Allocation, request: Allocation) -> bool:
        """Whether a size divides the global batches that the script states."""
        ranks = size.gpus // self.parallel
        if self.batch.gpu is None:
            return request.gpus % size.gpus == 0 and all(whole % ranks == 0 for whole in self.batch.whole)
        step = ranks * self.batch.gpu
        if self.batch.accumulation is not None:
            return all(whole == step * self.batch.accumulation for whole in self.batch.whole)
        return all(whole % step == 0 for whole in self.batch.whole)

    def _samples(self, size: Allocation) -> int | None:
        """The product of GPUs, batch and accumulation; what the script does not state does not change."""
        values = [formula_value(text, size, task_per_gpu=self.task_per_gpu) for text in self.batch.formulas]
        numbers = [int(value) for value in values if value is not None]
        return size.gpus * prod(numbers) if len(numbers) == len(values) else None


NO_CONSENT: Final = Consent()


def consent_of(
    words: Collection[str] | None,
    rules: ScriptRules,
    *,
    job_class: JobClass,
    declared: bool = False,
    task_per_gpu: bool,
) -> Consent:
    """Judge the words of a script, None if they were not all read.

    ``declared``: the class is its user's own word. ``task_per_gpu`` says that the job asked for as many tasks as
    GPUs, which srun starts.
    """
    if words is None:
        return Consent(sign="the script is too long to be read as a whole", cpus_fixed=True, memory_fixed=True)
    reading = Reading(words, rules, task_per_gpu=task_per_gpu)
    rigid = next(reading.rigid_signs(), None)
    batch = reading.batch() if reading.purposes(job_class, declared=declared).trains else Batch()
    if batch.unread and rigid is None:
        rigid = f"the script takes its size from elsewhere: {batch.sign}"
    moldable = None if rigid else next(reading.moldable_signs(), None)
    return Consent(
        moldable=moldable is not None,
        sign=rigid or moldable or "the script does not show where its size comes from",
        batch_sign=batch.sign if moldable else "",
        batch=batch,
        one_node=not reading.nodes_follow(),
        nodes=reading.node_range(),
        parallel=reading.parallel(),
        experts=reading.experts(),
        shards=job_class == "serve" or reading.shards(),
        task_per_gpu=task_per_gpu,
        cpus_fixed=reading.fixes(rules.cpus, rules.follows_cpus),
        memory_fixed=reading.fixes(rules.memory, rules.follows_memory),
        states_workers=reading.fixes(rules.workers, ("0", *rules.follows_cpus)),
    )
