"""Why a job has no decision: the plugin's tests again, on what Slurm tells of the job."""

from typing import Any

import msgspec
import pytest

from rlalloc.config import Config, Rule, parse_config
from rlalloc_cli import undecided
from rlalloc_cli.undecided import reason_of
from rlallocd.slurm import SubmittedJob

JOB = SubmittedJob(
    job_id=7,
    user="ada",
    account="LLM",
    partition="gpu",
    state="COMPLETED",
    submitted_s=1000,
    started_s=1003,
    gpus=4,
    is_interactive=False,
    admin_comment="",
    comment="",
)
LLM = b"#!/bin/sh\ntorchrun train.py\n"
RULES = """
mode: enforce
rules:
  - {name: others, mode: "off", accounts: [phys]}
  - {name: llm, accounts: [llm], partitions: [gpu], classes: [train]}
"""
TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=0;user_begin=0"


@pytest.mark.parametrize(
    ("fields", "script", "why"),
    [
        ({"is_interactive": True}, None, "a job without a script"),
        ({"gpus": 0}, LLM, "a job without GPUs"),
        ({}, None, "Slurm no longer has its script"),
        ({}, LLM + b"#RLALLOC off\n", "its script says #RLALLOC off"),
        ({}, b"#!/bin/sh\nmake\n", "none of the commands that tell an LLM job"),
        ({}, b"#!/bin/sh\nvllm serve x\n", "no rule covers a serve job of account LLM in partition gpu"),
        ({"partition": "gpu,cpu"}, LLM, "no rule covers a train job of account LLM in partition gpu,cpu"),
        ({"account": "phys"}, LLM, "rule others is in mode off"),
        ({}, LLM, "rule llm covers it now. When it was submitted, rlallocd did not run"),
        ({"comment": "rlalloc: off"}, LLM, "#RLALLOC off"),
        ({"comment": "rlalloc: gpus=1-8"}, b"#!/bin/sh\nmake\n", "rule llm covers it now"),
        ({"admin_comment": f"{TAG};skip=time-min"}, None, "a job whose time limit Slurm may shorten"),
        ({"admin_comment": TAG.replace("rule=llm", "rule=gone")}, None, "rule gone covered it at its submission"),
        ({"admin_comment": TAG, "partition": "new"}, None, "but does not cover account"),
        ({"admin_comment": TAG, "state": "PENDING", "started_s": 0}, None, "rlallocd has not decided it yet"),
        ({"admin_comment": TAG, "state": "CANCELLED", "started_s": 0}, None, "it was CANCELLED before it started"),
        ({"admin_comment": TAG}, None, "it started 3 s after its submission, before rlallocd had decided it"),
    ],
)
def test_each_reason_has_its_words(fields: dict[str, Any], script: bytes | None, why: str) -> None:
    assert why in reason_of(msgspec.structs.replace(JOB, **fields), script, parse_config(RULES, "a test"))


def test_a_rule_for_all_takes_a_job_without_an_account() -> None:
    config = Config(rules=(Rule(name="all"),))
    assert "rule all covers it now" in reason_of(msgspec.structs.replace(JOB, account=""), LLM, config)


@pytest.mark.parametrize(("uid", "why"), [(0, "Slurm does not know it"), (65_534, "it is not yours, or Slurm")])
def test_root_hears_that_there_is_no_such_job(monkeypatch: pytest.MonkeyPatch, uid: int, why: str) -> None:
    """Other users do not learn whether there is such a job."""
    monkeypatch.setattr(undecided, "submitted_job", lambda *_: None)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert undecided.why_undecided(999_999, Config()).startswith(why)
