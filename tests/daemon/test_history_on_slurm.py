"""Past jobs of a real site: added as they end, and imported by one command."""

import sys
import time
from pathlib import Path

import pytest

from rlalloc.past_job import PastJob
from rlalloc.store import Store
from rlalloc_testbed import Installation
from rlallocd.outcomes.ended_job_collection import SETTLED_AFTER_S
from slurm_testbed import wait_until
from tests.core.test_store_migrations import run_sql

from .conftest import MOLDABLE

pytestmark = pytest.mark.slurm

PROGRAM = Path(sys.executable).parent / "rlalloc"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
NOT_OURS = "#!/bin/sh\n#SBATCH --ntasks=1 --cpus-per-task=2 --mem=100M --time=7 --job-name=not_ours\nsrun true\n"
HOLDS_MEMORY = (
    "#!/bin/sh\n#SBATCH --ntasks=2 --nodes=1 --cpus-per-task=1 --mem=600M --time=7 --job-name=holds_memory\n"
    "#SBATCH --acctg-freq=task=1\n"
    "srun python3 -c 'import time; held = bytearray(50 << 20); time.sleep(5)'\n"
)


def past_jobs(path: Path) -> dict[str, PastJob]:
    store = Store(f"sqlite:///{path}", read_only=True)
    found = {job.job_id: job for job in store.history.past_jobs()}
    store.close()
    return found


def test_each_job_of_the_site_is_added_as_it_ends_or_found_later(
    rlalloc: Installation,
) -> None:
    began_s = time.time()
    rlalloc.stop("rlallocd")
    rlalloc.write_config(history={"every_s": 1.0, "first_days": 0})
    rlalloc.start("rlallocd")
    other = rlalloc.submit(NOT_OURS)
    array = rlalloc.submit(NOT_OURS, "--array=1-2")
    ours = rlalloc.submit(MOLDABLE)
    holds = rlalloc.submit(HOLDS_MEMORY)
    never = rlalloc.submit(NOT_OURS, "--hold")
    rlalloc.site.wait_for_states([other, array, ours, holds], ENDED)
    rlalloc.site.run(["scancel", str(never)])
    wanted = {str(other), f"{array}_1", f"{array}_2", str(ours), str(holds)}
    added = wait_until(
        lambda: wanted <= (found := past_jobs(rlalloc.store_path)).keys() and found,
        what="the jobs are added",
        timeout_s=SETTLED_AFTER_S + 60.0,
    )
    assert str(never) not in added
    job = added[str(other)]
    assert (job.name, job.user, job.state, job.cpus, job.mem_mib) == ("not_ours", "llm-alice", "COMPLETED", 2, 100)
    assert (job.limit_s, job.nodes, job.gpus) == (420, 1, 0)
    assert began_s - 2 <= job.submitted_s <= job.started_s <= job.ended_s <= time.time() + 2
    assert (added[str(ours)].gpus, added[str(ours)].limit_s) == (4, 600)  # as asked for
    assert (had := added[str(ours)].allotted) is not None
    assert (size := rlalloc.decision(ours).allocation) is not None
    assert (had.gpus, had.cpus) == (size.gpus, size.cpus)
    assert added[str(holds)].max_rss_mib is not None
    assert 100 <= (added[str(holds)].node_rss_mib or 0) <= 200  # two tasks of 50 MiB and an interpreter each

    rlalloc.stop("rlallocd")
    rlalloc.write_config(
        store={"url": f"sqlite:///{rlalloc.site.directory}/store.sqlite.imported", "keep_history_days": 90}
    )
    command: list[str | Path] = [PROGRAM, "history", "import", "--config", rlalloc.config_path]
    day = time.strftime("%Y-%m-%d", time.localtime(began_s - 86400))
    said = rlalloc.site.run([*command, "--create", "--starttime", day])
    assert "past jobs read" in said
    imported = past_jobs(rlalloc.site.directory / "store.sqlite.imported")
    assert wanted <= imported.keys()
    assert imported[str(other)] == job
    assert ", 0 of them new" in rlalloc.site.run(command)  # all of the 90 days, and nothing twice

    # An rlallocd that is new here finds what ended before it came, without any command.
    _end_earlier(rlalloc, other, days=1.2)
    _end_earlier(rlalloc, array, days=5.0)
    new = rlalloc.site.directory / "store.sqlite.new"
    rlalloc.write_config(
        history={"every_s": 1.0, "first_days": 2},
        daemon={"poll_s": 0.2, "outcomes_every_s": 0.2, "heartbeat_s": 0.2},
        store={"url": f"sqlite:///{new}"},
    )
    rlalloc.start("rlallocd")
    end = "the site's past jobs are in the store, read back to"
    wait_until(lambda: end in rlalloc.log("rlallocd"), what="the past is read", timeout_s=120)
    found = past_jobs(new)
    assert wanted - found.keys() == {f"{array}_2"}  # its last task has the id of the array, and ended too early
    assert (found[str(other)].name, found[str(other)].state, found[str(other)].cpus) == ("not_ours", "COMPLETED", 2)
    assert rlalloc.log("rlallocd").count("past jobs are read from sacct in the background, read back to") == 1


def _end_earlier(rlalloc: Installation, job_id: int, days: float) -> None:
    """Have slurmdbd believe that an ended job did all of it so many days earlier."""
    shift_s = int(days * 86400)
    job, step = (f"`{rlalloc.site.name}_{kind}_table`" for kind in ("job", "step"))
    times = ", ".join(f"time_{name} = time_{name} - {shift_s}" for name in ("submit", "start", "end"))
    of_job = f"job_db_inx = (SELECT job_db_inx FROM {job} WHERE id_job = {job_id})"
    run_sql(
        rlalloc.site.database_url("slurm_acct_db"),
        f"UPDATE {step} SET time_start = time_start - {shift_s}, time_end = time_end - {shift_s} WHERE {of_job}",
        f"UPDATE {job} SET time_eligible = time_start - {shift_s}, {times} WHERE id_job = {job_id}",
    )
