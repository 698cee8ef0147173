"""``rlalloc needs`` before a submission."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlalloc_cli.main import app

SCRIPT = """#!/bin/bash
#SBATCH --gres=gpu:8
deepspeed train.py --model_name_or_path meta-llama/Llama-2-13b-hf --deepspeed ds.json --gradient_checkpointing True
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["needs", *words], catch_exceptions=False)
    return done.exit_code, done.output


def test_it_prints_facts_memory_and_counts(script: Path) -> None:
    status, printed = run(str(script))
    assert status == 0
    assert "13.02 billion parameters (counted)" in printed
    assert "ds.json" in printed
    assert "mi300x" in printed


def test_json_has_the_counts_of_one_type(script: Path) -> None:
    status, printed = run(str(script), "--gpu", "a100-40", "--json", "--most", "16")
    assert status == 0
    answer = json.loads(printed)
    assert answer["parameters"] == 13_015_864_320
    assert answer["facts"]["zero_stage"] == 3
    assert answer["counts"] == {"a100-40": [7, 8, 16]}


def test_memory_can_be_said(script: Path) -> None:
    _, printed = run(str(script), "--gpu-memory", "1000", "--json")
    assert json.loads(printed)["counts"]["gpu"][0] == 1


@pytest.mark.parametrize(
    ("text", "words", "status", "said"),
    [
        ("srun hostname\n", [], 1, "names no model"),
        (SCRIPT, ["--gpu", "abacus"], 2, "--gpu abacus: unknown"),
        (
            SCRIPT + "deepspeed t.py --model 70b --tp 5 --pp 7 --bf16 --seq-length 1 --lora-r 8",
            ["--most", "8"],
            0,
            "no count",
        ),
    ],
)
def test_what_it_cannot_say(script: Path, text: str, words: list[str], status: int, said: str) -> None:
    script.write_text(text)
    found, printed = run(str(script), *words)
    assert found == status
    assert said in " ".join(printed.split())


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    status, printed = run(str(tmp_path / "missing.sh"))
    assert status == 2
    assert "No such file" in printed
