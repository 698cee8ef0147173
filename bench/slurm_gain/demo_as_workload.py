"""The demo's workload (demo/workload.yaml) as a workload's file: its jobs sleep as long as its programs would take.

A sleeping job cannot do what those of the demo's site do: launch by torchrun, take memory, train for real.
"""

import argparse
import functools
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.bounds import parse_directives
from rlalloc.config import load_config
from rlalloc.errors import RlallocError
from rlalloc.job import JobClass
from rlalloc.speed import CURVES
from rlalloc.tres import memory_mib
from rlalloc_demo.demo_configuration import HOUR_S, MIN_CPUS_PER_GPU, SHIPPED
from rlalloc_demo.demo_workload import FILE, Entry
from rlalloc_simulator.workloads import ClusterDescription, Header, Needs, NodeGroup, Request, Speed, WorkloadJob
from rlalloc_simulator.workloads.workload_job import CurveName

JOBS: Final = FILE.parent / "jobs"
NODES: Final = NodeGroup("n", 4, 8, 64, 512_000)
"""As the demo's site has (demo/rlalloc_demo/demo_site.py)."""
_SHIPPED: Final = load_config(SHIPPED).rules[0].bounds
GPT_RUN_S: Final = 15.0
"""Assumed of the one job that trains for real: it takes what the machine's cores give, with any number of GPUs."""


class DemoWorkloadError(RlallocError):
    """A job of the demo that a workload's file cannot express; the message says which and why."""


class Script(NamedTuple):
    """A script in demo/jobs: its options, its directives and its text."""

    options: tuple[str, ...]
    directives: str
    text: str


def demo_workload(entries: Sequence[Entry], seed: int) -> tuple[Header, list[WorkloadJob]]:
    """Return the workload: with seed 0 as it stands, with others the same jobs and times, in another order.

    Raises DemoWorkloadError where an entry cannot be read.
    """
    order = np.arange(len(entries)) if seed == 0 else np.random.default_rng(seed).permutation(len(entries))
    header = Header(
        origin=f"demo/workload.yaml, {len(entries)} jobs, seed {seed}",
        modelled=("needs",),
        cluster=ClusterDescription(nodes=(NODES,)),
    )
    times_s = sorted(entry.at for entry in entries)
    jobs = [
        job_of(entries[place], number, submit_s)
        for number, (place, submit_s) in enumerate(zip(order.tolist(), times_s, strict=True), start=1)
    ]
    return header, jobs


def job_of(entry: Entry, number: int, submit_s: float) -> WorkloadJob:
    """Return one job of the demo as one of a workload, submitted at ``submit_s``. Raises DemoWorkloadError."""
    script = read_script(JOBS / entry.script)
    options = _parsed((*script.options, *shlex.split(entry.sbatch)), entry)
    request = request_of(options, entry)
    job_class = _class_of(entry, script)
    curve = _curve_of(script)
    needed = CURVES[curve].cpus_per_gpu_needed / request.allocation.cpus_per_gpu
    return WorkloadJob(
        id=number,
        submit_s=submit_s,
        user=entry.user,
        request=request,
        needs=Needs(
            run_time_s=round(_run_time_s(entry, script, request, options.argument), 3),
            cpu_fraction=1.0 if job_class is None else needed,
            max_rss_mib=1.0,  # sleeping takes no memory
            speed=Speed(curve),
        ),
        job_class=job_class,
        directives="" if job_class is None else f"class={job_class} {_bounds_of(entry, script, request)}",
    )


@functools.cache
def read_script(path: Path) -> Script:
    """Read a script of the demo. Raises DemoWorkloadError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as err:
        raise DemoWorkloadError(f"{path}: {err.strerror}; this checkout is not complete") from err
    options = [word for line in re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE) for word in shlex.split(line)]
    return Script(tuple(options), " ".join(re.findall(r"^#RLALLOC (.*)$", text, re.MULTILINE)), text)


def request_of(options: argparse.Namespace, entry: Entry) -> Request:
    """Return what sbatch's options ask for; all nodes alike. Raises DemoWorkloadError."""
    gpus_per_node = options.gpus_per_node or (options.gpus or 0) // options.nodes
    cpus_per_task = options.cpus_per_task or (options.cpus_per_gpu or 1) * max(1, gpus_per_node)
    tasks = options.ntasks_per_node or 1
    per_cpu = memory_mib(options.mem_per_cpu) if options.mem_per_cpu else None
    mem_mib = memory_mib(options.mem) if options.mem else per_cpu and per_cpu * tasks * cpus_per_task
    if not mem_mib:
        raise DemoWorkloadError(f"{FILE}: {entry.sbatch!r} asks for no memory: write --mem or --mem-per-cpu")
    return Request(
        nodes=options.nodes,
        gpus_per_node=gpus_per_node,
        tasks_per_node=tasks,
        cpus_per_task=cpus_per_task,
        mem_mib_per_node=round(mem_mib),
        time_limit_s=60 * options.time,
    )


def _parsed(words: Sequence[str], entry: Entry) -> argparse.Namespace:
    """Parse sbatch's options as the demo writes them; the last of each counts, as with sbatch."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    for name in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "time"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("gpus", "gpus-per-node"):
        parser.add_argument(f"--{name}", type=_gpus)
    # All nodes of the demo are alike, so a GPU's type is left out.
    parser.add_argument("--gres", dest="gpus_per_node", type=_gpus)
    for name in ("job-name", "mem", "mem-per-cpu"):
        parser.add_argument(f"--{name}")
    parser.add_argument("script")
    parser.add_argument("argument", nargs="?", type=float)
    parser.add_argument("gpus_stated", nargs="?", type=int)  # rigid.sbatch
    parser.set_defaults(nodes=1)
    try:
        options, unknown = parser.parse_known_args(words)
    except argparse.ArgumentError as err:
        raise DemoWorkloadError(f"{FILE}: {entry.sbatch!r}: {err}") from err
    if unknown:
        raise DemoWorkloadError(f"{FILE}: {entry.sbatch!r}: {unknown[0]} is not known to {Path(__file__).name}")
    return options


def _gpus(text: str) -> int:
    """Read 2 of "2", "gpu:2" and "gpu:a100:2"."""
    return int(text.rsplit(":", 1)[-1])


def _class_of(entry: Entry, script: Script) -> JobClass | None:
    """None for jobs that rlalloc never resizes: a rule covers rigid jobs in the demo, but they keep their request."""
    if entry.kind not in ("declared", "by-script", "serve"):
        return None
    return "serve" if entry.kind == "serve" else parse_directives(script.directives).job_class or "train"


def _bounds_of(entry: Entry, script: Script, request: Request) -> str:
    """The script's own bounds; of one without a line those of the shipped rule, which a sleeping job cannot show."""
    if entry.kind != "by-script":
        return " ".join(word for word in script.directives.split() if not word.startswith("class="))
    least, most = _SHIPPED.moldable.gpus_factor or (1.0, 1.0)
    cpus, floor = request.allocation.cpus_per_gpu, MIN_CPUS_PER_GPU
    trimmed = f" cpus-per-gpu={floor:g}-{cpus:g}" if cpus > floor else ""
    return f"gpus={max(1, math.ceil(least * request.gpus))}-{int(most * request.gpus)}{trimmed}"


def _curve_of(script: Script) -> CurveName:
    found = re.search(r"--curve (\w+)", script.text)
    return msgspec.convert(found[1], CurveName) if found else "bert"


def _run_time_s(entry: Entry, script: Script, request: Request, argument: float | None) -> float:
    """Seconds that the entry's program takes at the requested size: by tokens, hours of serving, or seconds."""
    if "gpt_train.py" in script.text:
        return GPT_RUN_S
    if argument is None:
        raise DemoWorkloadError(f"{FILE}: {entry.sbatch!r} gives its script no argument: say how much there is to do")
    if entry.kind == "serve":
        return argument * HOUR_S
    if entry.kind == "ordinary":
        return argument
    tokens_per_s = _tokens_per_gpu_s() * CURVES[_curve_of(script)].at(request.gpus, request.allocation.cpus_per_gpu)
    return argument / tokens_per_s / 3600 * HOUR_S


@functools.cache
def _tokens_per_gpu_s() -> float:
    return float(msgspec.json.decode((JOBS / "speed.json").read_bytes())["tokens_per_gpu_s"])
