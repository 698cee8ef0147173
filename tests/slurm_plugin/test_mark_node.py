"""mark_node where slurmctld hands out the TaskProlog, as Slurm 25.11 can: with a scontrol that answers so."""

import subprocess
from pathlib import Path

import pytest

from rlalloc_testbed import PLUGIN
from rlallocd.slurm.node_mark import TASK_PROLOG_VERSION

SCONTROL = """#!/bin/sh
case "$*" in
    "show aliases") echo n1 ;;
    "show config") printf 'Configuration data as of 1795475716\nTaskProlog              = task_prolog\n' ;;
    "update "*) echo "$*" ;;
esac
"""


@pytest.mark.parametrize(
    ("sent", "marked"),
    [("exec {ours}", f"rlalloc-task-prolog@1795475716/{TASK_PROLOG_VERSION}"), ("exit 0", "")],
)
def test_a_name_without_a_folder_is_of_a_script_that_came_with_slurm_conf(
    tmp_path: Path, sent: str, marked: str
) -> None:
    conf, ours = tmp_path / "conf-cache/slurm.conf", tmp_path / "ours"
    conf.parent.mkdir()
    ours.write_text((PLUGIN / "task_prolog").read_text())
    (conf.parent / "task_prolog").write_text(f"#!/bin/sh\n{sent.format(ours=ours)}\n")
    (tmp_path / "scontrol").write_text(SCONTROL)
    for program in (ours, conf.parent / "task_prolog", tmp_path / "scontrol"):
        program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-s"],
        input=(PLUGIN / "mark_node").read_text().replace("/usr/lib/rlalloc/task_prolog", str(ours)),
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CONF": str(conf)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"update NodeName=n1 Extra={marked}\n" in done.stdout
    assert done.returncode == (0 if marked else 2)
