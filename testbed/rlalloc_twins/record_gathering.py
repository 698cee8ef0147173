"""Gathers what became of a plan: sacct, scontrol, rlalloc's store, and what the jobs wrote down."""

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rlalloc.store import Application, Decision, Store
from rlalloc.tres import parse_tres
from rlalloc_testbed import Installation
from rlalloc_twins.plan_player import PlanPlayer
from rlalloc_twins.twin_plan import Plan, SiteName
from rlalloc_twins.twin_record import Decided, Ended, Look, Run, SiteRecord, TwinJob, Update
from rlalloc_twins.twin_script import SEEN
from slurm_testbed import Site, wait_until

ENDED: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"})
ACCOUNTED_WITHIN_S: Final = 120.0
NEVER_KNOWN: Final = Ended("CANCELLED", "0:0", 0.0, None, None, "", {})
"""Of a job that accounting did not hear of."""
_COLUMNS: Final = ("JobID", "State", "ExitCode", "Submit", "Start", "End", "TimelimitRaw", "AllocTRES")
_FIELD: Final = re.compile(r" (?=[A-Z][A-Za-z/:]*=)")
_INNER: Final = "-inner"


def gather(
    site: Site,
    rlalloc: Installation | None,
    plan: Plan,
    player: PlanPlayer,
    name: SiteName,
    looks: Sequence[Look] = (),
) -> SiteRecord:
    """Join all of it. Raises WaitTimedOutError where accounting does not know all ends in time."""
    runs = {key: found for user in site.users for key, found in _runs(site.home(user) / SEEN).items()}
    keys = [job.key for job in plan.submissions]
    ids = {**player.ids, **_inner_ids(runs)}
    records = _records(site)
    # slurmdbd may never hear of a job that is cancelled as soon as it is submitted.
    cancelled = {number for number, found in records.items() if {each["JobState"] for each in found} == {"CANCELLED"}}
    wanted = frozenset(ids.values())
    ended = wait_until(
        lambda: _accounting(site, wanted, wanted - cancelled),
        what="sacct to know all ends",
        timeout_s=ACCOUNTED_WITHIN_S,
        interval_s=2.0,
    )
    decisions = _decisions(rlalloc, ids)
    jobs = [
        TwinJob(
            key=key,
            job_id=ids.get(key),
            refused=player.refused.get(key, ""),
            stuck=player.stuck.get(ids.get(key, 0), ""),
            tasks=ended.get(ids.get(key, 0), {"": NEVER_KNOWN} if key in ids else {}),
            records=tuple(records.get(ids.get(key, 0), ())),
            runs=runs.get(key, {}),
            events=player.happened.get(key, {}),
            decisions=decisions.get(key, ()),
        )
        for key in [*keys, *(key for key in ids if key.endswith(_INNER))]
    ]
    return SiteRecord(
        site=name,
        slurm=site.run(["scontrol", "--version"]).strip(),
        began_s=player.began_s,
        took_s=time.time() - player.began_s,
        load_of_machine=os.getloadavg(),
        jobs=tuple(jobs),
        looks=tuple(looks),
        log_errors=() if rlalloc is None else tuple(_complaints(rlalloc)),
    )


def _accounting(site: Site, wanted: frozenset[int], needed: frozenset[int]) -> dict[int, dict[str, Ended]]:
    """Ends of the wanted jobs by job and task; none as long as one has not ended there, or a needed one is unknown.

    Without a list of jobs, sacct would leave out those that were held while they ran: they have no eligible time.
    """
    text = site.run(
        ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--noconvert",
         f"--format={','.join(_COLUMNS)}", f"--jobs={','.join(map(str, sorted(wanted)))}"],
        environment={"SLURM_TIME_FORMAT": "%s"},
    )  # fmt: skip
    found: dict[int, dict[str, Ended]] = defaultdict(dict)
    for line in text.splitlines():
        row = dict(zip(_COLUMNS, line.split("|"), strict=True))
        job_id, task = re.fullmatch(r"(\d+)(.*)", row["JobID"]).groups()  # type: ignore[union-attr]
        if int(job_id) not in wanted:
            continue
        state = row["State"].split()[0]
        if state not in ENDED:
            return {}
        found[int(job_id)][task] = Ended(
            state=state,
            exit_code=row["ExitCode"],
            submitted_s=float(row["Submit"]),
            started_s=_time_s(row["Start"]),
            ended_s=_time_s(row["End"]),
            limit_min=row["TimelimitRaw"],
            tres=parse_tres(row["AllocTRES"]),
        )
    return found if found.keys() >= needed else {}


def _time_s(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _records(site: Site) -> dict[int, list[Mapping[str, str]]]:
    """The fields of ``scontrol show job`` by the id that sbatch printed."""
    found: dict[int, list[Mapping[str, str]]] = defaultdict(list)
    for line in site.run(["scontrol", "show", "job", "--oneliner"]).splitlines():
        fields = dict(part.split("=", 1) for part in _FIELD.split(line.strip()) if "=" in part)
        if "JobId" in fields:
            number = fields.get("ArrayJobId") or fields.get("HetJobId") or fields["JobId"]
            found[int(number)].append(fields)
    return found


def _runs(folder: Path) -> dict[str, dict[str, Run]]:
    """What jobs of one user wrote down, by key, then by task and number of the run ("0.0")."""
    found: dict[str, dict[str, Run]] = defaultdict(dict)
    for path in sorted(folder.glob("*.batch")):
        key, run = path.stem.split(".", 1)
        steps = {int(step.suffix[1:]): _variables(step) for step in folder.glob(f"{path.stem}.step.*")}
        found[key][run] = Run(
            batch=_variables(path),
            steps=dict(sorted(steps.items())),
            status=_text(path.with_suffix(".status")),
            errors=_text(path.with_suffix(".errors")),
            inner=_text(path.with_suffix(".inner")),
        )
    return found


def _variables(path: Path) -> dict[str, str]:
    text = path.read_text(errors="replace")
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


def _text(path: Path) -> str:
    return path.read_text(errors="replace").strip() if path.exists() else ""


def _inner_ids(runs: Mapping[str, Mapping[str, Run]]) -> dict[str, int]:
    """Ids of jobs that jobs submitted, by their keys; of a job that ran twice, the first one's."""
    said = ((key, run.inner.split(";")[0]) for key, of_key in runs.items() for run in list(of_key.values())[:1])
    return {f"{key}{_INNER}": int(number) for key, number in said if number.isdigit()}


def _decisions(rlalloc: Installation | None, ids: Mapping[str, int]) -> dict[str, tuple[Decided, ...]]:
    if rlalloc is None:
        return {}
    store = Store(rlalloc.settings["store"]["url"])
    try:
        return {
            key: tuple(_decided(each, store.applications(each.id)) for each in store.decisions_of(job_id))
            for key, job_id in ids.items()
        }
    finally:
        store.close()


def _decided(decision: Decision, applications: tuple[Application, ...]) -> Decided:
    return Decided(
        at_s=decision.decided_s,
        request=decision.request,
        allocation=decision.allocation,
        bounds=decision.bounds,
        reason=decision.reason,
        skip_code=decision.skip_code,
        updates=tuple(
            Update(each.original, each.intended, each.state, each.detail, each.changed_s) for each in applications
        ),
    )


def _complaints(rlalloc: Installation) -> Iterator[str]:
    """Lines of the daemon's log that tell of a failure."""
    for line in rlalloc.log("rlallocd").splitlines():
        if re.search(r"ERROR|Traceback|WARNING", line):
            yield line
