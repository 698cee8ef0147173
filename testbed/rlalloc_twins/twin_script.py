"""The batch script of a submission: it works for a while, and writes down what it and its step were given."""

from typing import Final

from rlalloc_twins.twin_plan import Inner, Submission

LAUNCH: Final = ": torchrun train.py"
"""Shows an LLM job to rlalloc.lua, and does nothing."""
SEEN: Final = "seen"
"""The folder, in a user's home, of what jobs wrote down: KEY.TASK.RUN.batch and so on."""

_HEAD: Final = """#!/bin/bash
{lines}{directive}{launch}
PATH=${{SLURM_TESTBED_PROGRAMS:+$SLURM_TESTBED_PROGRAMS:}}$PATH # with --export=NONE it is a login's
out=$SLURM_SUBMIT_DIR/seen/{key}.${{SLURM_ARRAY_TASK_ID:-0}}.${{SLURM_RESTART_COUNT:-0}}
"""
_SHOW: Final = """/usr/bin/env -0 > $out.batch
srun --output=none --error=$out.errors /bin/sh -c '/usr/bin/env -0 > '$out'.step.$SLURM_PROCID'
echo $? > $out.status
"""
_INNER: Final = """sbatch --parsable --output=/dev/null --job-name={key}-inner {options} inner/{key}.sh \\
    > $out.inner 2>&1
"""
# The work is so many GPU seconds: with an exponent below 1, as jobs scale.
_WORK: Final = """/usr/bin/sleep $(/usr/bin/awk -v now="${{SLURM_GPUS_ON_NODE:-0}}" -v nodes="${{SLURM_NNODES:-1}}" \\
    'BEGIN {{ gpus = now * nodes; print gpus ? {run_s} * ({gpus} / gpus) ^ 0.8 : {run_s} }}')
"""
_REQUEUE: Final = """if [ -z "$SLURM_RESTART_COUNT" ]; then
    scontrol requeue ${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
    /usr/bin/sleep 600
fi
"""


def script_of(job: Submission) -> str:
    """The text that sbatch gets."""
    parts = [_head(job.key, job.lines, job.directive, resizable=job.resizable)]
    if job.shows:
        parts.append(_SHOW)
    if job.inner is not None:
        parts.append(_INNER.format(key=job.key, options=" ".join(job.inner.options)))
    if job.scales and job.gpus:
        parts.append(_WORK.format(run_s=job.run_s, gpus=job.gpus))
    else:
        parts.append(f"/usr/bin/sleep {job.run_s}\n")
    if job.requeues_itself:
        parts.append(_REQUEUE)
    return "".join(parts) + f"exit {job.exit_status}\n"


def inner_script(key: str, job: Inner) -> str:
    """The text of a job inside a job; it lies in a file, for rlalloc.lua reads the whole text of the outer one."""
    return _head(key, (), job.directive, resizable=job.resizable) + _SHOW


def _head(key: str, lines: tuple[str, ...], directive: str, *, resizable: bool) -> str:
    return _HEAD.format(
        key=key,
        lines="".join(f"#SBATCH {line}\n" for line in lines),
        directive=f"#RLALLOC {directive}\n" if directive else "",
        launch=LAUNCH if resizable else ": python train.py",
    )
