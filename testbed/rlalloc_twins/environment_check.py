"""Compares a job's environment with that of the same job without rlalloc: what is different, and not documented."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rlalloc_twins.environment_differences import DIFFERENCES, Difference, Where, Whose
from rlalloc_twins.environment_values import ANY, GPU_LISTS, Changed, Expected

VARIES: Final = re.compile(
    r"SLURM(D)?_(JOBID|JOB_ID(_.*)?|ARRAY_JOB_ID|HET_JOB_ID(_.*)?|(STEP_|JOB_)?NODELIST(_.*)?|NODENAME|TOPOLOGY_ADDR|TASK_PID"
    r"|SRUN_COMM_(PORT|HOST)|STEP_LAUNCHER_PORT|LAUNCH_NODE_IPADDR|CLUSTER_NAME|WORKING_CLUSTER|CONF|SUBMIT_DIR"
    r"|TESTBED_SITE|JOB_(START|END)_TIME|JOB_SLUID|JOB_DEPENDENCY)|HOSTNAME|HOME|PWD|OLDPWD|_"
)
"""Variables that name the site, the node or the moment: two sites without rlalloc differ in them, too."""
_ORDER: Final[dict[Whose, int]] = {"every job": 0, "jobs of rlalloc": 1, "resized jobs": 2}
_COUNTED: Final = (*GPU_LISTS, "SLURM_GTIDS")


def unexplained(
    job: Changed, after: Mapping[str, str], where: Where, whose: Whose, *, same_size: bool
) -> Iterator[str]:
    """Say which variables differ otherwise than documented, or do not differ though they ought to.

    ``same_size``: it was given as much as without rlalloc, so that what follows from that has to be the same; of a
    resized job that does not matter.
    """
    documented = _documented(where, whose)
    follows = _documented(where, "resized jobs").keys() - _documented(where, "jobs of rlalloc").keys()
    for name in sorted({*job.before, *after, *documented}):
        if VARIES.fullmatch(name):
            continue
        if name in GPU_LISTS and not job.given.gpus:
            continue  # of a job inside a job: a node without GPUs leaves what it inherits, any other takes it away
        found = _seen(name, after.get(name))
        if (rule := documented.get(name)) is not None:
            wanted = rule.expected(job, name)
        elif not same_size and name in follows:
            continue
        else:
            wanted = _seen(name, job.before.get(name))
        if wanted not in (found, ANY) and found not in _inherited(job, name, where):
            found_words = f"{where}: {name} is {_word(after.get(name))}, expected {_word(wanted)}"
            yield f"{found_words}; without rlalloc {_word(job.before.get(name))}"


def _inherited(job: Changed, name: str, where: Where) -> tuple[Expected, ...]:
    """What else a variable of a job inside a job may be: gone, its own again, or what the outer job has by now.

    Its own again is what it is without rlalloc, or what its own size says where that is the outer job's new one.
    """
    if job.outer is None:
        return ()
    own = job.before.get(name)
    own_or_gone: tuple[Expected, ...] = ()
    if name in job.outer.size:
        of_size = _documented(where, "resized jobs").get(name)
        now = job.outer.after.get(name)
        is_own_size = of_size is not None and now is not None and of_size.expected(job, name) == now
        own_or_gone = (None, _seen(name, own), *((_seen(name, now),) if is_own_size else ()))
    handed_on = own is not None and own == job.outer.before.get(name)
    return (
        *own_or_gone,
        *((_seen(name, job.outer.after.get(name)),) if handed_on and name not in job.outer.size else ()),
    )


def _documented(where: Where, whose: Whose) -> dict[str, Difference]:
    return {
        name: each
        for each in DIFFERENCES
        if where in each.where and _ORDER[each.whose] <= _ORDER[whose]
        for name in each.names
    }


def _seen(name: str, value: Expected) -> Expected:
    """A value as it is compared: of lists how long they are, of our own variable whose it is."""
    if value is None:
        return None
    if name == "SLURM_GTIDS":
        return f"{len(value.split(','))} tasks"
    if name in _COUNTED:
        return f"{len(value.split(','))} GPUs"
    return value.partition(" ")[0] if name == "SLURM_SET_BY_RLALLOC" else value


def _word(value: Expected) -> str:
    return "not there" if value is None else repr(value)
