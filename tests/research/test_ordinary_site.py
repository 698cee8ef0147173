"""The jobs of an ordinary site get the bounds that rlalloc check prints for their scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from rlalloc.config import load_config
from rlalloc.job import Allocation
from rlalloc.scripts.script_words import read_long_script
from rlalloc_cli.check import report_on
from rlalloc_research.__main__ import app
from rlalloc_research.ordinary_site import Script, judged, rules_of, scripts_in
from tests.simulator.engine.by_hand import SHAPE, job

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = ROOT / "tests" / "slurm_plugin" / "scripts"
SHIPPED: Final = ROOT / "etc" / "rlalloc.yaml"
CONFIG: Final = load_config(SHIPPED)


def told(name: str) -> Script:
    return Script("train", read_long_script((SCRIPTS / f"{name}.sh").read_bytes(), CONFIG.word_table).words)


@pytest.mark.parametrize(
    "name", ["global-batch", "torchrun-four", "torchrun-gpus-on-node", "exported-and-computed-with"]
)
def test_a_job_has_the_counts_of_its_script(name: str) -> None:
    request = Allocation(
        nodes=1, gpus_per_node=SHAPE.gpus, tasks_per_node=1, cpus_per_task=8, mem_mib_per_node=8192, time_limit_s=3600
    )
    bounds, _ = judged(job(0.0, request), told(name), CONFIG.rules[0].bounds, CONFIG, SHAPE, 1)
    script = b"#!/bin/sh\n#SBATCH --gpus-per-node=8 --ntasks-per-node=1\n" + (SCRIPTS / f"{name}.sh").read_bytes()
    checked = report_on(script, CONFIG, SHAPE.gpus, "a100-80")
    assert checked.bounds is not None
    assert bounds.gpu_counts == checked.bounds.gpu_counts


def test_rules_that_allow_more_are_named() -> None:
    shipped, batches, both = rules_of(CONFIG).values()
    assert not shipped.moldable.batch_may_change
    assert batches.moldable.batch_may_change
    assert not batches.moldable.fit_may_be_unknown
    assert both.moldable.fit_may_be_unknown


def test_scripts_are_those_that_train_without_a_line(tmp_path: Path) -> None:
    found = scripts_in(SCRIPTS, CONFIG)
    assert 150 < len(found) < len(list(SCRIPTS.glob("*.sh")))
    done = CliRunner().invoke(app, ["ordinary-site", "--scripts", str(tmp_path), "--config", str(SHIPPED)])
    assert done.exit_code == 2
    assert "no script of a training" in done.output
