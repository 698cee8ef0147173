"""A site whose compute nodes are configless, on a real slurmctld, which sends them slurm.conf.

Nodes are checked as elsewhere, and jobs are resized, also those that come from a machine without slurm.conf.
"""

import os
import re
import shutil
from collections.abc import Iterator

import pytest

from rlalloc_testbed import PLUGIN, USER, Installation, install, start_site

from .conftest import MOLDABLE, doctor

pytestmark = pytest.mark.slurm

OUT_OF_MEMORY = MOLDABLE + "echo CUDA out of memory\nexit 1\n"


@pytest.fixture(scope="module")
def configless() -> Iterator[Installation]:
    """The nodes have TaskProlog and TaskEpilog; slurm.conf names them later, and reconfigure sends it there."""
    conf = {"TaskProlog": None, "AccountingStoreFlags": "job_comment"}
    with start_site(f"configless-{os.getpid()}", configless=True, extra_slurm_conf=conf) as site:
        for node in site.nodes:
            shutil.copy(PLUGIN / "task_epilog", site.etc_of(node))
        with (site.etc / "slurm.conf").open("a") as slurm_conf:
            slurm_conf.write(f"TaskProlog={site.etc}/task_prolog\nTaskEpilog={site.etc}/task_epilog\n")
        site.reconfigure()
        installation = install(site, nodes={"task_prolog": "checked"})
        assert doctor(installation, "all").items() >= {("node n1", "OK"), ("node n2", "OK"), ("checked nodes", "OK")}
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        yield installation
        installation.stop_all()


def test_a_job_from_a_machine_without_slurm_conf_is_resized_on_a_node_without_one(configless: Installation) -> None:
    site = configless.site
    sbatch = ["sbatch", "--parsable", f"--chdir={site.home(USER)}", "--nodelist=n2"]
    for node in site.nodes:
        assert site.try_run(site.on_node(node, ["test", "-e", site.etc / "slurm.conf"])).status == 1
    job_id = int(
        site.run(
            site.on_node("n1", ["runuser", f"--user={USER}", "--", *sbatch]),
            input=OUT_OF_MEMORY,
            environment=site.environment(USER),
        )
    )
    decision = configless.decision(job_id)
    assert decision.reason == ""
    assert decision.allocation is not None
    gpus = decision.allocation.gpus
    assert gpus in (1, 2)
    site.wait_for_states([job_id], {"FAILED"})
    job, output = configless.job(job_id), configless.output(job_id)
    assert f"gres/gpu={gpus}" in job["TRES"]
    assert f"SLURM_CONF={site.directory}/spool/n2/conf-cache/slurm.conf\n" in output
    assert f"RLALLOC_GPUS={gpus}\n" in output
    assert f"SLURM_GPUS_ON_NODE={gpus}\n" in output
    steps = re.findall(r"step-task 0 of 1 gpus (\S+)", output)
    assert [len(devices.split(",")) for devices in steps] == [gpus]
    assert job["Comment"] == "rlalloc:gpu-out-of-memory"


def test_a_node_that_lacks_the_taskprolog_is_found_and_marks_itself_when_it_has_it(configless: Installation) -> None:
    site = configless.site
    named = site.etc_of("n2") / "task_prolog"
    named.write_text("#!/bin/sh\n")
    found = doctor(configless, "all")
    assert (found["node n1"], found["node n2"], found["checked nodes"]) == ("OK", "FAIL", "WARN")
    shutil.copy(PLUGIN / "task_prolog", named)
    mark_node = (PLUGIN / "mark_node").read_text().replace("/usr/lib/rlalloc/task_prolog", f"{site.etc}/task_prolog")
    assert "marked n2" in site.run(site.on_node("n2", ["sh", "-s"]), input=mark_node)
    assert "rlalloc-task-prolog@" in site.run(["scontrol", "show", "node", "n2"])
