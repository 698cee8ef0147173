"""A node on which Slurm does not call the TaskProlog, on a real site: no resized job may start there."""

from pathlib import Path

import pytest

from rlalloc_testbed import PLUGIN, USER, Installation
from rlallocd.slurm.node_mark import TASK_PROLOG_VERSION
from slurm_testbed import wait_until

from .conftest import MOLDABLE, doctor

pytestmark = pytest.mark.slurm

# The site's own, on all nodes, while rlalloc's is missing on one: the nodes of a testbed share their files.
OF_THE_SITE = """#!/bin/sh
if [ "$SLURMD_NODENAME" = n2 ] && [ ! -e {ours}.on_n2 ]; then exit 0; fi
exec {ours}
"""


def restart(rlalloc: Installation) -> None:
    """Let rlallocd read everything anew; while it runs, it reads the nodes every 15 s."""
    rlalloc.stop("rlallocd")
    rlalloc.start("rlallocd")


def test_jobs_stay_as_submitted_until_each_node_was_checked(rlalloc: Installation) -> None:
    """Checked by doctor: that outlives slurmctld, but no boot of the node. The package's mark_node renews it."""
    site, named = rlalloc.site, rlalloc.site.etc / "task_prolog"
    ours, before = site.etc / "ours", named.read_text()
    ours.write_text((PLUGIN / "task_prolog").read_text())
    ours.chmod(0o755)
    named.write_text(OF_THE_SITE.format(ours=ours))
    on_n2 = Path(f"{ours}.on_n2")
    on_n2.unlink(missing_ok=True)
    try:
        rlalloc.write_config(nodes={"task_prolog": "checked"})
        restart(rlalloc)
        assert "n[1-2] stay as submitted" in rlalloc.log("rlallocd")
        found = doctor(rlalloc, "all")
        assert (found["node n1"], found["node n2"], found["checked nodes"]) == ("OK", "FAIL", "WARN")
        forged = ["scontrol", "update", "NodeName=n2", f"Extra=rlalloc-task-prolog@9999999999/{TASK_PROLOG_VERSION}"]
        assert site.try_run(forged, user=USER).status
        job_id = rlalloc.submit(MOLDABLE, "--nodelist=n2")
        assert rlalloc.decision(job_id).reason.startswith("task-prolog: no check has seen the TaskProlog on n")
        site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
        wait_until(lambda: "step-task 0" in rlalloc.output(job_id), what="its step ran", timeout_s=30)

        on_n2.touch()
        site.run(["scontrol", "update", "NodeName=n2", "Extra=rack 7"])
        found = doctor(rlalloc, "n2")
        assert (found["node n2"], found["checked nodes"]) == ("OK", "OK")  # what it marks now counts
        site.restart_daemon("slurmctld")
        site.wait_for_nodes()
        assert "Extra=rack 7 rlalloc-task-prolog@" in site.run(["scontrol", "show", "node", "n2"])
        restart(rlalloc)
        assert rlalloc.decision(rlalloc.submit(MOLDABLE)).reason == ""

        site.stop_daemon("slurmd-n2")
        site.start_daemon("slurmd-n2", "-b")  # as if the node had booted
        restart(rlalloc)
        decision = rlalloc.decision(rlalloc.submit(MOLDABLE))
        assert decision.reason == "task-prolog: no check has seen the TaskProlog on n2, where it may start"
        mark_node = (PLUGIN / "mark_node").read_text().replace("/usr/lib/rlalloc/task_prolog", str(ours))
        assert "marked n2" in site.run(["sh", "-s"], input=mark_node)
        assert "Extra=rack 7 rlalloc-task-prolog@" in site.run(["scontrol", "show", "node", "n2"])
        # A call that is commented out, one of an older version, and none: the mark that was there goes.
        old = site.etc / "old"
        old.write_text(ours.read_text().replace(f"seen-{TASK_PROLOG_VERSION}", "seen"))
        old.chmod(0o755)
        for script, changed in (
            (named, f"#!/bin/sh\n# exec {ours}\n"),
            (named, f"#!/bin/sh\nexec {old}\n"),
            (ours, ""),
        ):
            kept = script.read_text()
            script.write_text(changed)
            refused = site.try_run(["sh", "-s"], input=mark_node)
            assert (refused.status, "not marked" in refused.output) == (2, True)
            assert "rlalloc-task-prolog" not in site.run(["scontrol", "show", "node", "n2"])
            script.write_text(kept)
            assert "marked n2" in site.run(["sh", "-s"], input=mark_node)
        assert "no mark in n2" in site.run(["sh", "-s", "--", "--clear"], input=mark_node)
        assert "rlalloc-task-prolog" not in site.run(["scontrol", "show", "node", "n2"])
    finally:
        named.write_text(before)
