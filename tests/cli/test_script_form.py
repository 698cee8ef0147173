"""Forms of submission that rlallocd leaves as submitted, as `rlalloc check` finds them in the #SBATCH lines."""

from types import SimpleNamespace
from typing import Any

import pytest

from rlalloc.config import Config
from rlalloc.job import Bounds
from rlalloc_cli import site_nodes
from rlalloc_cli.check import report_on
from rlallocd.slurm import PartitionRecord, Slurm, SlurmError
from rlallocd.submissions.request_sizes import FORMS_SKIPPED
from tests.daemon.forms.matrix import FORMS, SKIPPED

PLAIN = "--nodes=1 --gres=gpu:4 --ntasks=4 --cpus-per-task=8 --mem=64G --time=60"
SITE = "rlalloc_cli.check.SiteSlurm"


def script_with(options: str, more: str = "") -> bytes:
    return f"#!/bin/sh\n#SBATCH {options}\n{more}\n#RLALLOC gpus=1-16\ntorchrun train.py\n#SBATCH -x\n".encode()


def skipped_of(options: str, more: str = "") -> str:
    return report_on(script_with(options, more), Config(), 8, None).skipped


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--exclusive", "whole-nodes"),
        ("--clusters=a,b", "multi-cluster"),
        ("-M a", "multi-cluster"),
        ("--reservation=maintenance", "reservation"),
        ("--deadline=now+9hours", "deadline"),
        ("--time-min=1", "time-min"),
        ("--time=0", "no-time-limit"),
        ("-t UNLIMITED", "no-time-limit"),
        ("-m arbitrary", "arbitrary"),
        ("--overcommit", "overcommit"),
        ("--ntasks-per-socket=1", "tasks-per-socket"),
        ("--ntasks-per-core=1", "tasks-per-socket"),
        ("--gres=gpu:4,nvme:1", "other-gres"),
        ("--tres-per-task=gres/nvme:1", "other-gres"),
        ("--gres=gpu:a100:2,gpu:h100:2", "several-gpu-types"),
        ("--gres=shard:a100:2", "typed-shards"),
        ("--gpus=4", "several-gpu-options"),
        ("--bb=capacity=1G", "burst-buffer"),
        ("--core-spec=2", "core-spec"),
        ("-S 2", "core-spec"),
        ("--thread-spec=2", "core-spec"),
        ("--constraint=[a|b]", "constraint"),
        ("-C a*2", "constraint"),
    ],
)
def test_a_form_has_the_name_and_the_text_of_explain(options: str, name: str) -> None:
    assert skipped_of(f"{PLAIN} {options}") == f"{name}: {FORMS_SKIPPED[name]}; it runs as submitted"


@pytest.mark.parametrize("options", ["--cpus-per-task=4", "--gres=none", "--gres=gpu:0", "--gpus=0"])
def test_a_job_without_gpus(options: str) -> None:
    assert skipped_of(options) == f"no-gpus: {FORMS_SKIPPED['no-gpus']}; it runs as submitted"


@pytest.mark.parametrize(
    ("options", "text"),
    [("-N2 -n 3 --gres=gpu:2", "3 tasks do not"), ("-N2 --gpus=3", "3 GPUs do not")],
)
def test_uneven_requests(options: str, text: str) -> None:
    assert skipped_of(options).startswith(f"uneven: {text} divide evenly among 2 nodes")


def test_forms_in_other_lines() -> None:
    assert skipped_of(PLAIN, "#SBATCH hetjob").startswith("heterogeneous: ")
    assert skipped_of(PLAIN, "#DW jobdw capacity=1G").startswith("burst-buffer: ")


@pytest.mark.parametrize(
    "options",
    [
        PLAIN,
        f"{PLAIN} --exclusive=user",
        f"{PLAIN} --constraint=a&b",
        f"{PLAIN} --core-spec=0",
        "--gpus-per-node=a100:4",
        "-N2-4 --gpus=9",
        "--gpus-per-task=1 --ntasks=4",
        "--tres-per-task=cpu:4,gres/gpu:2 --ntasks=2",
        "--gpus-per-socket=2 --sockets-per-node=2",
        "--gres=shard:2",
        "--gpus=4 --cpus-per-gpu=6 --mem-per-gpu=50G",
        "--gres=gpu --cpus-per-task=x --mem=lots",
    ],
)
def test_what_may_be_resized_has_bounds(options: str) -> None:
    report = report_on(script_with(options), Config(), 8, None)
    assert (report.skipped, report.bounds is not None) == ("", True)


@pytest.mark.parametrize("name", [name for name in SKIPPED if name != "heterogeneous job"])
def test_what_a_site_skipped_is_skipped(name: str) -> None:
    """The forms that the tests submit to real sites. The one left out has nothing in its #SBATCH lines."""
    options, code = SKIPPED[name]
    assert skipped_of(options).startswith(f"{code}: ")


@pytest.mark.parametrize("name", FORMS)
def test_what_a_site_resized_is_not_skipped(name: str) -> None:
    """But for whole nodes: these forms are tried there without the rules of the daemon."""
    form = FORMS[name]
    assert skipped_of(form.options).partition(":")[0] == ("whole-nodes" if form.whole_nodes else "")


def test_mistakes_are_named_beside_a_form() -> None:
    script = script_with(f"{PLAIN} --exclusive").replace(b"gpus=1-16", b"gpu=1")
    assert report_on(script, Config(), 8, None).mistakes


def test_what_the_site_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether partitions give whole nodes, and what an update breaks in its version of Slurm."""

    def site(*whole: str, default: str = "shared", broken: str = "") -> Any:
        records = {
            name: PartitionRecord(
                name=name, max_time_s=None, max_nodes=None, whole_nodes=name in whole, is_default=name == default
            )
            for name in ("whole", "shared")
        }
        return lambda: SimpleNamespace(partitions=lambda: records, skipped_forms=lambda: {broken})

    monkeypatch.setattr(SITE, site("whole", broken="ntasks-per-gpu"))
    assert skipped_of(f"{PLAIN} --exclusive -p whole") == ""
    assert skipped_of(f"{PLAIN} --exclusive -p whole,shared").startswith("whole-nodes: ")
    assert skipped_of(f"{PLAIN} --exclusive").startswith("whole-nodes: ")
    assert skipped_of("--gpus=4 --mem-per-cpu=1G") == ""
    assert skipped_of("--gpus=4 --mem-per-cpu=1G -p whole").startswith("whole-nodes: ")
    assert skipped_of("--gpus=4 --mem-per-gpu=1G -p whole").startswith("whole-nodes: ")
    assert skipped_of("--gpus=8 --mem-per-gpu=1G -p whole") == ""
    assert skipped_of("--gpus=4 --mem-per-cpu=1G -p shared") == ""
    assert skipped_of("--gpus=4 --mem-per-gpu=1G -p shared") == ""
    assert skipped_of("--gpus=4 --ntasks-per-gpu=1").startswith("ntasks-per-gpu: ")
    monkeypatch.setattr(SITE, site("whole", default="whole"))
    assert skipped_of(f"{PLAIN} --exclusive") == ""
    assert skipped_of("--gpus=4 --mem-per-cpu=1G").startswith("whole-nodes: ")
    assert skipped_of("--gpus=4 --ntasks-per-gpu=1") == ""
    monkeypatch.setattr(SITE, site("whole", default=""))
    assert skipped_of("--gpus=4 --mem-per-cpu=1G") == ""


def test_a_slurm_that_does_not_answer_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt can take ten seconds."""
    tried = []

    class Silent(Slurm):
        def __init__(self, *_: object) -> None:
            tried.append(self)
            raise SlurmError("scontrol took too long")

    monkeypatch.setattr(site_nodes, "Slurm", Silent)
    report = report_on(script_with("--gpus=4 --mem-per-cpu=1G --ntasks-per-gpu=1"), Config(), None, None)
    assert "assumed, since Slurm shows no nodes here" in report.nodes
    assert len(tried) == 1


def test_switches_and_bound_gpus_leave_counts_out() -> None:
    def bounds_of(options: str) -> Bounds:
        bounds = report_on(script_with(f"{PLAIN} {options}"), Config(), 8, None).bounds
        assert bounds is not None
        return bounds

    assert bounds_of("").gpu_counts[-1] == 16
    assert bounds_of("--switches=1").gpu_counts[-1] == 8
    assert "enforce-binding" in bounds_of("--gres-flags=enforce-binding").sockets
