"""The words of one batch script, by the kinds of the site's table (``rlalloc.scripts.script_rules``). Pure functions.

Signs are sentences for people.
"""

import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from rlalloc.job import JobClass
from rlalloc.llm.script_options import EVALUATION_BACKENDS, server_of
from rlalloc.scripts.script_context import ARGUMENTS, ASSIGNS, COMPARES, ENVIRONMENT, EVALS, FILE, SOURCES, WRITES
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.scripts.script_sizes import Kind, is_formula, kind_of, whole_number
from rlalloc.scripts.script_words import STATES, as_pairs, word_name

_A_SIZE: Final = re.compile(r"(?i)gpu|world_?size|nproc|ntasks|nnodes|num_nodes|nvidia|device")
_NOT_READ_BY_PROGRAMS: Final = re.compile(r"(?:environment|env|conda|compose|docker-compose)[^/]*\.ya?ml")
_OF_A_LAUNCHER: Final = re.compile(
    r"(?i)(?:^|[._-])(?:ds|deepspeed|zero[0-9]?|fsdp|config|conf|cfg)(?:[0-9]*[._-]|$)"
)
_A_FILE: Final = re.compile(r"\$|\.(?:json|ya?ml)$")
_MORE_THAN_ONE: Final = re.compile(r"[2-9]|[1-9][0-9]{1,3}|[0-9]{1,4}(?:,[0-9]{1,4})+")
"""A count of a name that no table has; larger numbers are sizes of something else."""
_SOME_GPUS: Final = re.compile(r"[1-9][0-9]*|[0-9]+:[0-9]+|[0-9.:]+(?:,[0-9.:]+)+|(?:GPU|MIG)-.+")
"""The number of one GPU other than the first, a MIG instance by its numbers, several of these, or UUIDs."""
_OF_EACH_PROCESS: Final = re.compile(r"LOCAL|RANK|PROCID")
_ELASTIC: Final = re.compile(r"([1-9][0-9]{0,5}):([1-9][0-9]{0,5})")
_IN_ALL: Final = ("$SLURM_NTASKS", "$SLURM_NPROCS", "$SLURM_GPUS", "$RLALLOC_GPUS")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_A_NODE: Final = re.compile(r"(?i).*per-node|num-gpus|ngpus|nproc|(?:num-)?devices")
_OF_ALL_NODES: Final = re.compile(r"(?i)num-processes|world-size")
"""What launchers mean by a count: that of each node, or of the whole job."""
_OF_A_PLAN: Final = ("$RLALLOC_DP", "$RLALLOC_TP", "$RLALLOC_PP")
_NO_SHARDS: Final = ("ddp", "dp", "auto", "none", "no", "false", "0", "single_device")


class Batch(NamedTuple):
    """What the script says of its batch: ``sign`` is empty where another GPU count can leave the global batch alone.

    ``unread``: it states a global batch that cannot be read; other counts may not divide it. ``whole`` are the global
    batches, ``gpu`` the batch of one GPU and ``accumulation`` in steps, None where they are not stated as one number.
    ``formulas`` are those of the last two that follow the GPUs.
    """

    sign: str = ""
    unread: bool = False
    whole: tuple[int, ...] = ()
    gpu: int | None = None
    accumulation: int | None = None
    formulas: tuple[str, ...] = ()


class Purposes(NamedTuple):
    """What a script does with models; one of the two at least."""

    serves: bool
    trains: bool


class Reading:
    """The words of one script, by kinds."""

    def __init__(self, words: Collection[str], rules: ScriptRules, *, task_per_gpu: bool) -> None:
        self._pairs = as_pairs(words)
        self._names = {name for name, _ in self._pairs}
        self._rules = rules
        self._task_per_gpu = task_per_gpu
        tasks = frozenset(rules.follows_tasks)
        self._gpus = frozenset(rules.follows) | (tasks if task_per_gpu else frozenset())
        self._beside = frozenset(rules.follows_nodes) | tasks

    def rigid_signs(self) -> Iterator[str]:
        """What does not follow the allocation, and what nobody can read."""
        for shown, kind in self._counts():
            if kind == "number":
                yield f"the script states a count: {shown}"
            elif kind == "unknown":
                yield f"the script has a count that cannot be read: {shown}"
        tasks = [each for each in self._rules.tasks if each not in self._rules.slurm_tasks]  # they were one list once
        for command in self._rules.starts_tasks:
            if self.has((command,)) and not self._of((f"{command} -n", *tasks)):
                yield f"the script does not show how many tasks {command} starts"
        for name, value in self._of(self._rules.nodes):
            if value != "1" and not self._follows_nodes(value):
                yield f"the script states its nodes: {_shown(name, value)}"
        for name, value in self._of((*self._rules.parallel, *self._rules.experts)):
            if whole_number(value) is None and kind_of(value or "", self._gpus, self._beside) != "follows":
                yield f"the script has a parallel size that cannot be read: {_shown(name, value)}"
        yield from self._signs_of_one_size()

    def _signs_of_one_size(self) -> Iterator[str]:
        """What makes a script right for its request alone, or may."""
        for name, value in self._of(self._rules.fixed):
            yield f"the script has an option that is right for one GPU count only: {_shown(name, value)}"
        for shown in self._single_gpus():
            yield f"the script names one of its GPUs: {shown}"
        for value in self._compared():
            yield f"the script compares or changes a size: {value}"
        for value in self._unread_files():
            what = "runs another script" if value.endswith(".sh") else "names a configuration"
            yield f"the script {what}, which rlalloc does not read: {value}"
        yield from self._unknown_setups()
        for _, command in self._of((ASSIGNS,)):
            yield f"{command} sets a variable whose name the script computes"
        if self.has((ARGUMENTS,)):
            yield "the script passes on its arguments, which rlalloc does not read"
        if self.shards() and self.has(self._rules.resumes):
            yield "the script resumes a model that is spread over as many GPUs as before"

    def moldable_signs(self) -> Iterator[str]:
        """Counts that follow the allocation, and launchers that use what they find."""
        for shown, kind in self._counts():
            if kind == "follows":
                yield f"the script takes its size from Slurm or the machine: {shown}"
        if not self.has(self._rules.elsewhere):
            for command in self._rules.finds_gpus:
                # A program or an option behind it shows the command; the bare word may be an environment's name.
                if any((value or "").endswith((".py", "--")) for _, value in self._of((command,))):
                    yield f"{command} uses the GPUs that it finds"
        if self._srun_starts_all():
            yield "srun starts a task per GPU"

    def nodes_follow(self) -> bool:
        """Whether the launcher spans as many nodes as the job gets, with the right count on each."""
        if self._is_right_on_one_node_only():
            return False
        stated = [value for _, value in self._of(self._rules.nodes) if value is not None]
        if stated:
            return all(map(self._follows_nodes, stated))
        in_all = self._task_per_gpu and any(value in _IN_ALL for _, value in self._tasks())
        return in_all or self._srun_starts_all()

    def _is_right_on_one_node_only(self) -> bool:
        """Whether the GPUs of the job stand as those of a node, or those of a node as those of the job."""
        in_all, of_a_plan, nodes = (
            {word.removeprefix("$") for word in words} for words in (_IN_ALL, _OF_A_PLAN, self._rules.follows_nodes)
        )
        for name, value in (*self._of(self._rules.counts), *self._tasks()):
            named = set(_NAME.findall(value or ""))
            if named.isdisjoint(nodes) and (
                (_OF_A_NODE.fullmatch(name) and not named.isdisjoint(in_all))
                or (_OF_ALL_NODES.fullmatch(name) and named.isdisjoint(in_all | of_a_plan))
            ):
                return True
        return False

    def node_range(self) -> tuple[int, int] | None:
        """The nodes that an elastic launch can have, as in ``--nnodes=1:4``."""
        found = [_ELASTIC.fullmatch(value or "") for _, value in self._of(self._rules.nodes)]
        ranges = [(int(match[1]), int(match[2])) for match in found if match is not None]
        return (max(low for low, _ in ranges), min(high for _, high in ranges)) if ranges else None

    def purposes(self, job_class: JobClass, *, declared: bool) -> Purposes:
        """Whether the script serves a model, trains one, or both.

        ``declared``: the class is its user's own word. Then a job of the class serve does not train.
        """
        backends = any(name == "model" and value in EVALUATION_BACKENDS for name, value in self._pairs)
        serves = job_class == "serve" or backends or any(server_of(name) for name in self._names)
        trains = job_class != "serve" or (not declared and self._shows_training(may_evaluate=backends))
        return Purposes(serves, trains)

    def _shows_training(self, *, may_evaluate: bool) -> bool:
        """Whether a launcher or a batch shows that the script trains, whatever else it does.

        ``may_evaluate``: a launcher whose program is not known may be that of lm_eval.
        """
        rules = self._rules
        launchers = {*rules.finds_gpus, *rules.starts_processes} - {"vllm serve", *rules.starts_tasks}
        if any(value not in (None, "--") or not may_evaluate for _, value in self._of(launchers)):
            return True
        batches = [entry for entry in (*rules.gpu_batch, *rules.deepspeed_batch) if "train" in entry]
        return any(map(self.has, (rules.whole_batch, batches, rules.accumulation)))

    def batch(self) -> Batch:
        """What the script says of its batch."""
        rules = self._rules
        of_deepspeed = self.has(("train_micro_batch_size_per_gpu", "zero_optimization"))
        of_deepspeed_alone = {word_name(entry) for entry in rules.deepspeed_batch} if of_deepspeed else set()
        whole = self._values((*rules.whole_batch, *of_deepspeed_alone))
        either = {word_name(entry) for entry in (*rules.gpu_batch, *rules.deepspeed_batch)}
        gpu = self._values(either - of_deepspeed_alone)
        accumulation = self._values(rules.accumulation)
        batch = Batch(gpu=_one_number(gpu), accumulation=_one_number(accumulation))
        if whole:
            numbers = tuple(number for value in whole if (number := whole_number(value)) is not None)
            if len(numbers) < len(whole) or (accumulation and batch.accumulation is None):
                return batch._replace(sign="its global batch cannot be read", unread=True)
            return batch._replace(whole=numbers)
        formulas = tuple(value for value in (*gpu, *accumulation) if value is not None and is_formula(value))
        fixed = [value for value in (*gpu, *accumulation) if not is_formula(value)]
        if formulas and all(whole_number(value) is not None for value in fixed):
            return batch._replace(formulas=formulas)
        if gpu or accumulation:
            return batch._replace(sign="its global batch follows the count (it states batches per GPU only)")
        return batch._replace(sign="it states no global batch")

    def shards(self) -> bool:
        """Whether the model is spread over the GPUs of its data-parallel ranks."""
        named = self._of(self._rules.shards)
        return self.has(("deepspeed",)) or any(not (value or "").startswith(_NO_SHARDS) for _, value in named)

    def parallel(self) -> int:
        """GPUs of one copy of the model, by what the script states."""
        return self._product(self._rules.parallel)

    def experts(self) -> int:
        """Ranks among which the script divides the experts."""
        return self._product(self._rules.experts)

    def _product(self, entries: Iterable[str]) -> int:
        """The product of the numbers that these state: of several for one name, what all divide."""
        sizes: dict[str, int] = {}
        for name, value in self._of(entries):
            sizes[name] = math.lcm(sizes.get(name, 1), whole_number(value) or 1)
        return math.prod(sizes.values())

    def fixes(self, entries: Iterable[str], follows: Collection[str]) -> bool:
        """Whether one of these is given otherwise than by a word of ``follows``."""
        stated = [value for _, value in self._of(entries) if value is not None]
        return any(kind_of(value, follows) != "follows" for value in stated)

    def has(self, entries: Iterable[str]) -> bool:
        """Whether one of these is there."""
        return any(word_name(entry) in self._names for entry in entries)

    def _counts(self) -> Iterator[tuple[str, Kind]]:
        """Each count with its kind. A task, or the tasks that Slurm counts, say nothing of GPUs by themselves."""
        for name, value in self._of(self._rules.counts):
            yield _shown(name, value), kind_of(value or "", self._gpus, self._beside)
        for name, value in self._tasks():
            kind = kind_of(value or "", self._gpus, self._beside)
            if value != "1" and (kind != "unknown" or kind_of(value or "", self._beside) == "unknown"):
                yield _shown(name, value), kind
        yield from self._states()
        for name, value in self._of(self._rules.ranks):
            if value in ("1", "-1") or kind_of(value or "", self._beside) == "follows":
                continue
            yield _shown(name, value), kind_of(value or "", self._gpus, self._beside)

    def _tasks(self) -> list[tuple[str, str | None]]:
        return self._of((*self._rules.slurm_tasks, *self._rules.tasks, *self._rules.tasks_of_commands()))

    def _states(self) -> Iterator[tuple[str, Kind]]:
        """Values of names that no table has and that may be those of counts, where they do not follow."""
        for name, value in self._pairs:
            if name.startswith(STATES) and value is not None:
                kind = kind_of(value, self._gpus, self._beside)
                if kind != "follows" and (value.startswith("$") or _MORE_THAN_ONE.fullmatch(value)):
                    yield _shown(name.removeprefix(STATES), value), kind

    def _single_gpus(self) -> Iterator[str]:
        """GPUs by number or UUID, such as cuda:3; the first is always there, and each process has its own."""
        for name, value in self._of(self._rules.indices):
            text = value or ""
            is_variable = text.startswith("$") and _OF_EACH_PROCESS.search(text) is None
            if (is_variable and kind_of(text, self._gpus) != "follows") or _SOME_GPUS.fullmatch(text) is not None:
                yield _shown(name, value)

    def _compared(self) -> Iterator[str]:
        """Sizes that the script has a condition on, or that it may have one on."""
        for _, value in self._of((COMPARES,)):
            if value in (None, "_", ENVIRONMENT) or _A_SIZE.search(value or ""):
                yield value or "_"

    def _unread_files(self) -> Iterator[str]:
        """Configurations that the script names and does not write itself: sizes and batches may stand in them."""
        written = {value for _, value in self._of((WRITES,))}
        launchers = {word_name(entry) for entry in self._rules.finds_gpus}
        for name, value in self._of(self._rules.configurations):
            # The word behind the command deepspeed is its program; the one behind the option, a file.
            is_program = name in launchers and _A_FILE.search(value or "") is None
            if value is not None and not is_program and value.rpartition("/")[2] not in written:
                yield value
        sourced = {(value or "").rpartition("/")[2] for _, value in self._of((SOURCES,))}
        for _, value in self._of((FILE,)):
            name = value or "_"
            if name in sourced or (name.endswith(".sh") and self._rules.only_sets_up_the_shell(name)):
                continue
            is_other = name.endswith(".json") and _OF_A_LAUNCHER.search(name) is None
            if name not in written and not is_other and _NOT_READ_BY_PROGRAMS.fullmatch(name) is None:
                yield name

    def _unknown_setups(self) -> Iterator[str]:
        """What may set any variable: files and commands that are not known to set up the shell alone."""
        for name, value in self._of((SOURCES, EVALS)):
            setup = value or "_"
            if not self._rules.only_sets_up_the_shell(setup if name == SOURCES else setup.rpartition("/")[2]):
                how = "sources a file that" if name == SOURCES else "evaluates what"
                yield f"the script {how} may set a size: {setup}"

    def _follows_nodes(self, value: str | None) -> bool:
        text = value or ""
        return kind_of(text, self._beside) == "follows" or _ELASTIC.fullmatch(text) is not None

    def _srun_starts_all(self) -> bool:
        others = (*self._rules.finds_gpus, *self._rules.starts_processes, *self._rules.starts_tasks)
        return self._task_per_gpu and self.has(("srun",)) and not self.has(others)

    def _values(self, entries: Iterable[str]) -> list[str | None]:
        return list(dict.fromkeys(value for _, value in self._of(entries)))

    def _of(self, entries: Iterable[str]) -> list[tuple[str, str | None]]:
        names = _names_of(tuple(entries))
        return [pair for pair in self._pairs if pair[0] in names]


@functools.lru_cache(maxsize=4096)
def purposes_of(words: tuple[str, ...], rules: ScriptRules, *, job_class: JobClass, declared: bool) -> Purposes:
    """``Reading.purposes``, kept: many jobs of a site have the same script."""
    return Reading(words, rules, task_per_gpu=False).purposes(job_class, declared=declared)


@functools.lru_cache(maxsize=256)
def _names_of(entries: tuple[str, ...]) -> frozenset[str]:
    """Kept: the entries are those of the site's configuration."""
    return frozenset(word_name(entry) for entry in entries)


def _shown(name: str, value: str | None) -> str:
    return name if value is None else f"{name}={value}"


def _one_number(values: list[str | None]) -> int | None:
    """The number that all of them are; None if they differ, or one is none."""
    numbers = {whole_number(value) for value in values}
    return numbers.pop() if len(numbers) == 1 else None
