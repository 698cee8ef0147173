"""May a job's GPU count change without a ``#RLALLOC`` line? What its script shows, judged by the site's table.

A script whose size comes from Slurm or from the machine is moldable. One that states a count, or one that
nobody can read, is rigid, and rigid wins. The submit plugin collects words (``rlalloc.script_words``); this module
judges them. A global batch is what we may not change: counts that do not divide it are left out. A script that states
batches per GPU only is not moldable, since its global batch would follow the count.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal

import msgspec

from rlalloc.job import JobClass
from rlalloc.script_rules import ScriptRules
from rlalloc.script_words import as_pairs, word_name

_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_IN_ARITHMETIC: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")
_NUMBERS: Final = re.compile(r"-?(?:[A-Za-z0-9_.-]+:)*[0-9][0-9,.-]*")
_MOST_DIGITS: Final = 9
_SHORTEST_PROGRAM: Final = 6
"""A word of ``follows`` this long is looked for inside of ``$(…)``: nvidia-smi, not all."""
Kind = Literal["follows", "number", "unknown"]


class Consent(msgspec.Struct, frozen=True):
    """What a script allows. ``sign`` says why, for people.

    ``one_node``: the launcher as written stays on one node. ``whole_batch`` and ``gpu_batch`` are in samples,
    ``accumulation`` in steps, None where they cannot be read. ``parallel`` is the product of tensor, pipeline and
    context parallelism. ``shards``: the model is spread over the GPUs, so that fewer may not hold it.
    """

    moldable: bool = False
    sign: str = ""
    one_node: bool = True
    whole_batch: int | None = None
    gpu_batch: int | None = None
    accumulation: int | None = None
    parallel: int = 1
    batch_follows: bool = False
    shards: bool = False
    cpus_fixed: bool = False
    memory_fixed: bool = False

    def allows(self, gpus: int) -> bool:
        """Whether a count of GPUs leaves the parallelism and the global batch as they are."""
        if gpus % self.parallel:
            return False
        if self.whole_batch is None:
            return True
        step = gpus // self.parallel * (self.gpu_batch or 1)
        if self.gpu_batch is not None and self.accumulation is not None:
            return self.whole_batch == step * self.accumulation
        return self.whole_batch % step == 0


NO_CONSENT: Final = Consent()


def consent_of(
    words: Collection[str] | None, rules: ScriptRules, *, job_class: JobClass, task_per_gpu: bool
) -> Consent:
    """Judge the words of a script, None if they were not all read.

    ``task_per_gpu`` says that the job asked for as many tasks as GPUs, which srun starts.
    """
    if words is None:
        return Consent(sign="the script is too long to be read as a whole", cpus_fixed=True, memory_fixed=True)
    reading = _Reading(words, rules, task_per_gpu=task_per_gpu)
    rigid = next(reading.rigid_signs(), None)
    moldable = None if rigid else next(reading.moldable_signs(), None)
    sign = rigid or moldable or "the script does not show where its size comes from"
    whole, per_gpu = reading.number(rules.whole_batch), reading.number(rules.gpu_batch)
    trains = job_class != "serve"
    batch_follows = trains and whole is None and reading.has(rules.gpu_batch)
    if moldable and batch_follows:
        sign += "; its global batch follows the count (it states batches per GPU only)"
    return Consent(
        moldable=moldable is not None,
        sign=sign,
        one_node=not reading.nodes_follow(),
        whole_batch=whole if trains else None,
        gpu_batch=per_gpu if trains else None,
        accumulation=reading.number(rules.accumulation) if trains else None,
        parallel=reading.product(rules.parallel),
        batch_follows=batch_follows,
        shards=not trains or reading.has(rules.shards) or reading.starts(("deepspeed",)),
        cpus_fixed=reading.fixes(rules.cpus),
        memory_fixed=reading.fixes(rules.memory),
    )


class _Reading:
    """The words of one script, by the kinds of a table. Signs are sentences for people."""

    def __init__(self, words: Collection[str], rules: ScriptRules, *, task_per_gpu: bool) -> None:
        self._pairs = as_pairs(words)
        self._names = {name for name, _ in self._pairs}
        self._rules = rules
        self._task_per_gpu = task_per_gpu
        tasks = frozenset(rules.follows_tasks)
        self._gpus = frozenset(rules.follows) | (tasks if task_per_gpu else frozenset())
        self._beside = frozenset(rules.follows_nodes) | tasks

    def rigid_signs(self) -> Iterator[str]:
        """Counts of GPUs, processes or nodes that do not follow the allocation."""
        for shown, kind in self._counts():
            if kind == "number":
                yield f"the script states a count: {shown}"
            elif kind == "unknown":
                yield f"the script has a count that cannot be read: {shown}"
        for name, value in self._of(self._rules.nodes):
            if value not in (None, "1") and not self._follows_nodes(value):
                yield f"the script states its nodes: {name}={value}"

    def moldable_signs(self) -> Iterator[str]:
        """Counts that follow the allocation, and launchers that use what they find."""
        for shown, kind in self._counts():
            if kind == "follows":
                yield f"the script takes its size from Slurm or the machine: {shown}"
        if not self.has(self._rules.elsewhere):
            for command in self._rules.finds_gpus:
                # A program behind it shows the command; the bare word may be an environment's name.
                if any((value or "").endswith(".py") for _, value in self._of((command,))):
                    yield f"{command} uses the GPUs that it finds"
        if self._srun_starts_all():
            yield "srun starts a task per GPU"

    def nodes_follow(self) -> bool:
        """Whether the launcher spans as many nodes as the job gets."""
        stated = [value for _, value in self._of(self._rules.nodes) if value is not None]
        return all(map(self._follows_nodes, stated)) if stated else self._srun_starts_all()

    def fixes(self, entries: Iterable[str]) -> bool:
        """Whether one of these is given otherwise than by a word that follows the allocation, or 0 (all)."""
        follows = frozenset(self._rules.follows_cpus)
        stated = [value for _, value in self._of(entries) if value not in (None, "0")]
        return any(kind_of(value or "", follows) != "follows" for value in stated)

    def number(self, entries: Iterable[str]) -> int | None:
        """The whole number that these state; None if none does, or they differ."""
        numbers = {int(value) for _, value in self._of(entries) if value is not None and _is_count(value)}
        return numbers.pop() if len(numbers) == 1 else None

    def product(self, entries: Iterable[str]) -> int:
        """The product of the numbers that these state, each name once."""
        numbers = dict(self._of(entries)).values()
        return math.prod(int(value) for value in numbers if value is not None and _is_count(value))

    def has(self, entries: Iterable[str]) -> bool:
        """Whether one of these is there."""
        return bool(self._of(entries))

    def starts(self, commands: Iterable[str]) -> bool:
        """Whether one of these commands is there."""
        return any(self._there(commands))

    def _counts(self) -> Iterator[tuple[str, Kind]]:
        """Each count with its kind. A task, or the tasks that Slurm counts, say nothing of GPUs by themselves."""
        for name, value in self._of(self._rules.counts):
            if value is not None:
                yield f"{name}={value}", kind_of(value, self._gpus, self._beside)
        for name, value in self._of(self._rules.tasks):
            if value not in (None, "1"):
                kind = kind_of(value or "", self._gpus, self._beside)
                if kind != "unknown" or kind_of(value or "", self._beside) == "unknown":
                    yield f"{name}={value}", kind

    def _follows_nodes(self, value: str | None) -> bool:
        return kind_of(value or "", self._beside) == "follows"

    def _srun_starts_all(self) -> bool:
        others = (*self._rules.finds_gpus, *self._rules.starts_processes)
        return self._task_per_gpu and self.starts(("srun",)) and not self.starts(others)

    def _of(self, entries: Iterable[str]) -> list[tuple[str, str | None]]:
        names = {word_name(entry) for entry in entries}
        return [pair for pair in self._pairs if pair[0] in names]

    def _there(self, commands: Iterable[str]) -> Iterator[str]:
        return (command for command in commands if word_name(command) in self._names)


def kind_of(value: str, follows: Collection[str], beside: Collection[str] = ()) -> Kind:
    """Say whether a value follows the allocation, is a number, or can be anything.

    ``beside``: variables that it may name as well, as in ``$((SLURM_NNODES*SLURM_GPUS_ON_NODE))``.
    """
    if value in follows and not value.startswith("$"):
        return "follows"
    if value.startswith("$(("):
        named = _IN_ARITHMETIC.findall(value)
        if any(name.isdigit() for name in named):
            return "number"
    elif value.startswith("$("):
        programs = (word for word in follows if len(word) >= _SHORTEST_PROGRAM and not word.startswith("$"))
        return "follows" if any(word in value for word in programs) else "unknown"
    else:
        named = _VARIABLE.findall(value)
    if not named:
        return "number" if _NUMBERS.fullmatch(value) else "unknown"
    variables = {f"${name}" for name in named}
    known = variables <= {*follows, *beside} and not variables.isdisjoint(follows)
    return "follows" if known else "unknown"


def _is_count(value: str) -> bool:
    return re.fullmatch(rf"[1-9][0-9]{{0,{_MOST_DIGITS - 1}}}", value) is not None
