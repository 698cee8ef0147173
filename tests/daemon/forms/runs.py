"""Runs the whole matrix on one site: all jobs are submitted, changed by the daemon's own code, let go, and read."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from rlalloc.bounds import NodeShape
from rlalloc.job import Allocation
from rlalloc.tres import gpus_of, parse_tres
from rlalloc_testbed import USER
from rlallocd.slurm import JobRecord, SlurmError, UpdateRefused
from rlallocd.slurm.control import Control
from rlallocd.slurm.generations import capabilities_of
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.submissions.intercept import INTERCEPT_HEADER
from rlallocd.submissions.job_tag import read_tag, with_note
from rlallocd.submissions.request_sizes import Skipped, check_form, size_of, size_on
from rlallocd.transactions.update_plans import (
    plan_restoration,
    plan_update,
    without_empty_memory,
    without_same_nodes,
    without_same_tasks,
)
from slurm_testbed import Site, wait_until

from .matrix import (
    AS_SUBMITTED,
    COLUMNS,
    FORMS,
    REQUEUED,
    RESTORED,
    SHRINK,
    SITE_CPUS,
    SITE_GPUS,
    SITE_MEM_MIB,
    SKIPPED,
    Form,
    wanted,
)

LONG_GRACE_S: Final = 7200
SHAPE: Final = NodeShape(gpus=SITE_GPUS, cpus=SITE_CPUS, mem_mib=SITE_MEM_MIB)
_STILL_FOR_CYCLES: Final = 45
ENDED: Final = {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"}

# Writes what the batch script sees and, a line for each task, what its steps see; each run of a job by its own name.
# A job to be requeued sees to that itself, and waits for its end.
SCRIPT: Final = r"""#!/bin/bash
#RLALLOC gpus=1-64
: torchrun train.py
me=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
me=${me:-$SLURM_JOB_ID}
out=$HOME/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}.${SLURM_ARRAY_TASK_ID:-0}.${SLURM_RESTART_COUNT:-0}
env -0 > $out.batch
srun sh -c 'echo $SLURM_PROCID $SLURM_NTASKS $SLURM_NNODES $CUDA_VISIBLE_DEVICES $RLALLOC_NODES $RLALLOC_GPUS' \
    > $out.steps 2> $out.errors
echo $? > $out.status
case $SLURM_JOB_NAME in
    *requeued) [ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue $me; sleep 600; } ;;
esac
"""


class Run(NamedTuple):
    """One run of one job: what its batch script and its steps saw."""

    batch: Mapping[str, str]
    steps: Sequence[str]
    status: str
    errors: str


class Cell(msgspec.Struct, kw_only=True):
    """One job of the matrix."""

    form: str
    change: str
    job_id: int
    record: JobRecord | None = None
    size: Allocation | None = None
    problem: str = ""
    skipped: str = ""
    state: str = ""
    tres: Mapping[str, float] = {}
    runs: list[Run] = []


class Matrix:
    """All cells of one site, run to their ends."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in site.environment().items():
            monkeypatch.setenv(name, value)
        commands = Commands(timeout_s=120)
        self.site = site
        self.control = Control(commands)
        self.capabilities = capabilities_of(self.control.config().slurm_version)
        self.reader = JsonReader(commands, self.capabilities)
        self.cells: dict[tuple[str, str], Cell] = {}
        self._gate = self._still = 0
        self._run()

    def records(self) -> dict[int, JobRecord]:
        """Every job by the id that sbatch printed."""
        return {job.job_id: job for job in self.reader.jobs()}

    def _run(self) -> None:
        self._intercept()
        self._gate = self.site.sbatch("#!/bin/sh\ntrue\n", user=USER, options=["--hold", "--time=5"])
        for name, form in FORMS.items():
            for change in (AS_SUBMITTED, *COLUMNS):
                self._submit(name, change, form.options, form)
        for name, (options, _) in SKIPPED.items():
            self._submit(name, AS_SUBMITTED, options, Form(options))
        before = self.records()
        for cell in self.cells.values():
            self._change(cell, before[cell.job_id])
        self._let_go()
        self._requeue()
        self._collect()

    def _intercept(self) -> None:
        """Tell the plugin to defer all jobs for long, as the daemon would; nothing here depends on the pace."""
        runtime = self.site.run_directory / "rlalloc"
        runtime.mkdir(exist_ok=True)
        expires = int(time.time()) + LONG_GRACE_S
        ends = (f"expires {expires}", "uptime 9999999999")
        lines = (INTERCEPT_HEADER, *ends, f"grace {LONG_GRACE_S}", "class train torchrun")
        skips = (f"skip {form}" for form in self.capabilities.skipped_forms)
        rule = "rule llm enforce partitions=* accounts=* classes=train"
        (runtime / "intercept").write_text("\n".join([*lines, *skips, rule, ""]))

    def _submit(self, form_name: str, change: str, options: str, form: Form) -> None:
        words = options.split()
        if form.waits:
            words.append(f"--dependency=afterok:{self._gate}")
        name = "requeued" if change == REQUEUED else "cell"
        common = ["--time=10", f"--job-name={name}", "--output=/dev/null"]
        if ":" in words:
            words[words.index(":") + 1 : words.index(":") + 1] = ["--time=10"]
        job_id = self.site.sbatch(SCRIPT, user=USER, options=[*common, *words])
        self.cells[form_name, change] = Cell(form=form_name, change=change, job_id=job_id)

    def _change(self, cell: Cell, record: JobRecord) -> None:
        """What the daemon does to one job, less the decision."""
        cell.record = record
        tag = read_tag(record.admin_comment)
        if tag is not None and tag.skip:
            cell.skipped = tag.skip
            return
        try:
            check_form(record)
            request = size_on(record, SHAPE)
        except Skipped as err:
            cell.skipped = err.name
            return
        form = FORMS.get(cell.form, Form(""))
        cell.size = wanted(request, form, cell.change)
        if cell.size is None or cell.change == AS_SUBMITTED:
            return
        comment = with_note(record.admin_comment, "0")
        try:
            if cell.change == RESTORED:
                self.control.update(plan_update(record, SHRINK(request, form), comment))
                restoration = without_empty_memory(plan_restoration(record, size_of(record), comment), record)
                self.control.update(without_same_tasks(restoration, record))
            else:
                self.control.update(without_same_nodes(plan_update(record, cell.size, comment), record))
        except SlurmError as err:
            cell.problem = str(err)

    def _let_go(self) -> None:
        idle = [cell.job_id for cell in self.cells.values() if cell.size is None and cell.change != AS_SUBMITTED]
        if idle:
            self.site.run(["scancel", *map(str, idle)])
            self.cells = {key: cell for key, cell in self.cells.items() if cell.job_id not in idle or cell.skipped}
        self.read_back = self.records()
        ids = [job.job_id for job in self.read_back.values() if job.pending and job.begin_s > time.time()]
        for first in range(0, len(ids), 200):
            self.control.begin(ids[first : first + 200], 0)
        held = [cell.job_id for (name, _), cell in self.cells.items() if "--hold" in name]
        self.held = [self.read_back[job_id].held for job_id in held]
        self.site.run(["scontrol", "release", ",".join(map(str, [self._gate, *held]))], user=USER)

    def _requeue(self) -> None:
        """Jobs that put themselves back into the queue: Slurm lets them wait two minutes, which nobody has to."""
        waiting = {cell.job_id for cell in self.cells.values() if cell.change == REQUEUED and not cell.skipped}

        def back() -> set[int]:
            return {job.base_id for job in self.reader.jobs() if job.base_id in waiting and job.restarts}

        wait_until(lambda: back() == waiting, what="jobs requeue themselves", timeout_s=400, interval_s=3)
        with contextlib.suppress(UpdateRefused):  # on a slow machine the two minutes are over for some
            # At once, slurmd would refuse the last ones ("Job credential revoked").
            self.control.begin(sorted(waiting), time.time() + 5)

    def _collect(self) -> None:
        ids = {cell.job_id: cell for cell in self.cells.values() if cell.change == AS_SUBMITTED or not cell.skipped}
        wait_until(lambda: self._all_ended_but_stuck(ids), what="all cells end", timeout_s=400, interval_s=2)
        listed = ",".join(map(str, ids))
        text = self.site.run(
            [
                "sacct",
                "-X",
                "--noheader",
                "--parsable2",
                "--noconvert",
                "--format=JobID,State,AllocTRES",
                "-j",
                listed,
            ]
        )
        for line in text.splitlines():
            name, state, tres = line.split("|")
            cell = ids[int(re.split(r"[_+]", name)[0])]
            # Of an array or a heterogeneous job, one part stands for all unless another did not end well.
            if not cell.state or state != "COMPLETED":
                cell.state, cell.tres = state, parse_tres(tres)
        for cell in self.cells.values():
            cell.runs = list(self._runs(cell))

    def _all_ended_but_stuck(self, ids: Mapping[int, Cell]) -> bool:
        """Cancel what can never start, so that one such cell does not hide all others."""
        left = [job for job in self.reader.jobs() if job.base_id in ids and job.state not in ENDED]
        waiting = [job for job in left if job.pending]
        self._still = self._still + 1 if left == waiting and waiting else 0
        if self._still > _STILL_FOR_CYCLES:
            for job in waiting:
                ids[job.base_id].problem = f"it waits for {job.reason}, alone"
            self.site.run(["scancel", *(str(job.job_id) for job in waiting)])
        return not left

    def _runs(self, cell: Cell) -> Iterator[Run]:
        home = self.site.home(USER)
        for path in sorted(home.glob(f"{cell.job_id}.*.batch")):
            pairs = (item.partition("=")[::2] for item in path.read_text().split("\0") if item)
            yield Run(
                batch=dict(pairs),
                steps=sorted(_text(path.with_suffix(".steps")).splitlines(), key=_task_number),
                status=_text(path.with_suffix(".status")),
                errors=_text(path.with_suffix(".errors")),
            )


def _task_number(line: str) -> tuple[int, str]:
    number = line.split(" ", 1)[0]
    return (int(number) if number.isdigit() else -1, line)


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else "none"


def allocated(cell: Cell) -> tuple[int, int, int, int]:
    """Nodes, CPUs, GPUs and MiB that sacct shows."""
    tres = cell.tres
    return int(tres.get("node", 0)), int(tres.get("cpu", 0)), gpus_of(tres), int(tres.get("mem", 0))
