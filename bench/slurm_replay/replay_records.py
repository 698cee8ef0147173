"""What became of a workload's jobs: accounting, slurmctld's log and rlalloc's store, joined."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from rlalloc.job import Allocation
from rlalloc.store import Decision, Store
from rlalloc.tres import parse_tres
from rlalloc_simulator.workloads import WorkloadJob
from rlalloc_simulator.workloads.readers.sacct_log import COLUMNS
from rlalloc_testbed import Installation
from rlalloc_validation.recorded_run import RanJob, Run, StartedBy
from rlalloc_validation.validation_settings import Mode, sizes_jobs
from slurm_load import slurmctld_log
from slurm_testbed import Site, wait_until

ENDED: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"})
FIELDS: Final = ("JobIDRaw", "State", "Submit", "Start", "End", "NodeList", "AllocTRES", "ReqTRES", "TimelimitRaw")
ACCOUNTED_WITHIN_S: Final = 120.0
_STARTED_BY: Final[dict[str, StartedBy]] = {
    "sched: Allocate": "main",
    "sched/backfill: _start_job: Started": "backfill",
}
_START: Final = re.compile(rf"\[[^]]+\] (?P<what>{'|'.join(_STARTED_BY)}) JobId=(?P<job>\d+)")
_NODES: Final = re.compile(r"(\d+)(?:-(\d+))?")


def run_of(
    site: Site, rlalloc: Installation | None, jobs: Sequence[WorkloadJob], ids: Mapping[int, int], mode: Mode
) -> Run:
    """Join what is known of ended jobs. Raises WaitTimedOutError where accounting does not know all ends in time."""
    machine = os.getloadavg()
    wanted = frozenset(ids.values())
    accounting = wait_until(
        lambda: _accounting(site, wanted),
        what="sacct to know all ends",
        timeout_s=ACCOUNTED_WITHIN_S,
        interval_s=2.0,
    )
    log = site.log_directory / "slurmctld.log"
    submitted_s = slurmctld_log.submissions(log, wanted)
    let_go_s = slurmctld_log.last_updates(log, wanted) if sizes_jobs(mode) else {}
    started_by = _starters(log)
    decisions, updates = _decisions(rlalloc, wanted)
    ran = []
    for job in jobs:
        job_id = ids[job.id]
        row, decision = accounting[job_id], decisions.get(job_id)
        ran.append(
            RanJob(
                number=job.id,
                submitted_s=submitted_s[job_id],
                noted_s=float(row["Submit"]),
                started_s=float(row["Start"]) if row["Start"].isdigit() else None,
                ended_s=float(row["End"]),
                state=row["State"].split()[0],
                size=_size(row),
                nodes=_node_numbers(row["NodeList"]),
                started_by=started_by.get(job_id, ""),
                let_go_s=let_go_s.get(job_id),
                decided=None if decision is None else decision.allocation,
                skip_code="" if decision is None else decision.skip_code,
            )
        )
    return Run(
        mode=mode,
        by=site.run(["scontrol", "--version"]).strip(),
        policy=", ".join(sorted({each.policy_version for each in decisions.values() if each.policy_version})),
        load_of_machine=machine,
        updates=updates,
        jobs=tuple(ran),
    )


def sacct_text(site: Site) -> str:
    """What accounting knows, as ``rlalloc simulate convert --from sacct`` reads it (docs/reference/workloads.md)."""
    return site.run(
        ["sacct", "--allusers", "--parsable2", f"--format={','.join(COLUMNS)}"],
        environment={"SLURM_TIME_FORMAT": "%s"},
    )


def _accounting(site: Site, job_ids: frozenset[int]) -> dict[int, dict[str, str]]:
    """Rows of sacct by job, epoch seconds; none as long as one has not ended there."""
    text = site.run(
        ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", f"--format={','.join(FIELDS)}"],
        environment={"SLURM_TIME_FORMAT": "%s"},
    )
    rows = (dict(zip(FIELDS, line.split("|"), strict=True)) for line in text.splitlines())
    found = {int(row["JobIDRaw"]): row for row in rows if row["State"].split()[0] in ENDED}
    return found if found.keys() >= job_ids else {}


def _size(row: Mapping[str, str]) -> Allocation:
    tres = parse_tres(row["AllocTRES"] or row["ReqTRES"])
    nodes = int(tres.get("node", 1))
    return Allocation(
        nodes=nodes,
        gpus_per_node=int(tres.get("gres/gpu", 0)) // nodes,
        tasks_per_node=1,
        cpus_per_task=int(tres["cpu"]) // nodes,
        mem_mib_per_node=round(tres["mem"]) // nodes,
        time_limit_s=60 * int(row["TimelimitRaw"]),
    )


def _node_numbers(names: str) -> tuple[int, ...]:
    """0 and 1 of "n[1-2]"; none where there is no node."""
    if not names.startswith("n") or names == "None assigned":
        return ()
    return tuple(
        number - 1 for first, last in _NODES.findall(names) for number in range(int(first), int(last or first) + 1)
    )


def _starters(log: Path) -> dict[int, StartedBy]:
    """Which scheduler started each job, by slurmctld's log."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        matches = (_START.match(line) for line in lines)
        return {int(match["job"]): _STARTED_BY[match["what"]] for match in matches if match}


def _decisions(rlalloc: Installation | None, job_ids: Collection[int]) -> tuple[dict[int, Decision], int]:
    """The last decision for each job that has one, and how many updates were begun in all."""
    if rlalloc is None:
        return {}, 0
    store = Store(rlalloc.settings["store"]["url"])
    try:
        found = {job_id: store.decisions_of(job_id) for job_id in job_ids}
        updates = sum(len(store.applications(each.id)) for decisions in found.values() for each in decisions)
        return {job_id: decisions[-1] for job_id, decisions in found.items() if decisions}, updates
    finally:
        store.close()
