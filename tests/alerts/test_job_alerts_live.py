"""What fires when updates go wrong, jobs are killed, or most are skipped: a real site, a real Prometheus."""

import os
import signal
from collections.abc import Iterator

import pytest

from rlalloc_testbed import PLUGIN, USER, Installation, start_site
from slurm_testbed import Site, wait_until
from tests.daemon.conftest import MOLDABLE

from .conftest import COMPLETE, Watch, fresh

pytestmark = [pytest.mark.slurm, pytest.mark.alerts]

REWRITES = """
local rlalloc = dofile("{rlalloc}")
function slurm_job_submit(job_desc, part_list, submit_uid)
   rlalloc.job_submit(job_desc, part_list, submit_uid)
   return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   if job_rec.name == "rewritten" then
      if job_desc.cpus_per_task == 32 then return slurm.ERROR end
      if job_desc.tres_per_node ~= nil then job_desc.pn_min_memory = 300000 end
   end
   return slurm.SUCCESS
end
return slurm.SUCCESS
"""
"""A plugin of the site: jobs of one name get more memory than rlalloc gives them, and never their request back."""
OUT_OF_MEMORY = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB"


@pytest.fixture(scope="module")
def rewriting_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    script = tmp_path_factory.mktemp("plugin") / "job_submit.lua"
    script.write_text(REWRITES.format(rlalloc=PLUGIN / "rlalloc.lua"))
    name = f"alerts-jobs-{os.getpid()}"
    with start_site(name, job_submit_lua=script, extra_slurm_conf=COMPLETE) as site:
        yield site


@pytest.fixture
def rewriting(rewriting_site: Site) -> Iterator[Installation]:
    found = fresh(rewriting_site)
    found.write_config(grace_s=600)
    found.start("rlalloc-agent")
    found.start("rlallocd")
    yield found
    found.stop_all()
    (found.runtime / "intercept").unlink(missing_ok=True)
    rewriting_site.run(["scancel", "--user", USER])


def test_an_update_that_is_neither_finished_nor_undone_and_a_job_that_runs_with_it(
    rewriting: Installation, watch: Watch
) -> None:
    server = watch(rewriting)
    job_id = rewriting.submit(MOLDABLE, "--job-name=rewritten")
    wait_until(lambda: "not restored yet" in rewriting.log("rlallocd"), what="it cannot be restored", timeout_s=120)
    watch(rewriting, healthy=False).wait_for("RlallocJournalUnfinished")
    rewriting.site.run(["scontrol", "update", f"JobId={job_id}", "StartTime=now"])
    server.wait_for("RlallocUpdateLost")


def test_a_job_that_runs_out_of_memory_in_a_size_of_ours(rewriting: Installation, watch: Watch) -> None:
    server = watch(rewriting)
    job_id = rewriting.submit(f"{MOLDABLE}\necho '{OUT_OF_MEMORY}' >&2\nexit 1\n")
    rewriting.site.wait_for_states([job_id], {"FAILED"})
    assert "gres/gpu=4" not in rewriting.job(job_id)["TRES"]
    server.wait_for("RlallocJobsKilled")


def test_jobs_most_of_which_are_skipped(rewriting: Installation, watch: Watch) -> None:
    server = watch(rewriting)
    rewriting.stop("rlalloc-agent", signal.SIGKILL)
    for _ in range(14):
        rewriting.submit(MOLDABLE)
    server.wait_for("RlallocAgentDown", "RlallocManyJobsSkipped")
