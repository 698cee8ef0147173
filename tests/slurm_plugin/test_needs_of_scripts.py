"""What the corpus tells of its LLMs: as derived by hand (expected.toml), and by the plugin's words as by scripts."""

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from rlalloc.config import Config
from rlalloc.llm.facts import Facts, facts_of_words
from rlalloc.llm.model_needs import counts_that_fit
from rlalloc.llm.named_files import facts_of_script
from rlalloc.llm.script_options import FOLLOWS_GPUS, PLANNED
from rlalloc.scripts.script_words import read_long_script

from .hostile_scripts import corpus

SCRIPTS: Final = corpus()
TABLE: Final = Config().word_table
TOLD: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "scripts" / "expected.toml").read_text(encoding="utf-8")
)
CLASSES: Final = {name: expected["class"] for name, expected in TOLD.items()}
EXPECTED: Final[dict[str, dict[str, Any]]] = {name: expected.get("needs", {}) for name, expected in TOLD.items()}
NEEDS: Final = (
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "expert_parallel",
    "global_batch",
    "micro_batch",
    "sequence",
    "precision",
    "dtype",
    "zero_stage",
    "lora_rank",
    "weights",
    "max_length",
)
BY_WORDS: Final = ("model", "architecture", *(name for name in NEEDS if name != "zero_stage"), "memory_fraction")
SIZES: Final = {"follows": FOLLOWS_GPUS, "plan": PLANNED}
WORDS_TELL_MORE: Final = {
    "vllm-offline-heredoc": "a Python program in a here-document is no command of the script",
    "heredoc-python": "likewise",
    "train-then-serve": "the words do not say which of two programs has an option",
    "trl-grpo-vllm": "likewise",
    "trains-beside-a-judge": "likewise",
    "vllm-judge-beside-torchrun": "likewise",
}
WORDS_TELL_LESS: Final = {
    "deepspeed-heredoc-auto": "of keys in files that the script writes, the plugin collects those of the rules alone",
    "nemo-hydra-dimensions": "likewise of settings",
}


def by_script(name: str) -> Facts:
    return facts_of_script(SCRIPTS[name].decode("utf-8", errors="replace"))


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in WORDS_TELL_MORE])
def test_words_tell_what_the_script_tells(name: str) -> None:
    words = read_long_script(SCRIPTS[name], TABLE).words
    assert words is not None
    by_words, by_text = facts_of_words(words, "serve" if CLASSES[name] == "serve" else None), by_script(name)
    fields = BY_WORDS
    if name in WORDS_TELL_LESS:
        fields = tuple(field for field in fields if getattr(by_words, field) is not None)
    assert {field: getattr(by_words, field) for field in fields} == {
        field: getattr(by_text, field) for field in fields
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_needs_are_those_that_an_engineer_derives(name: str) -> None:
    """What the table does not name, the script does not tell."""
    expected, facts = EXPECTED[name], by_script(name)
    assert (facts.architecture is not None) == ("parameters" in expected)
    if facts.architecture is None:
        return
    assert facts.architecture.parameters / 1e9 == pytest.approx(expected["parameters"], rel=0.03)
    if not expected.get("several_programs"):
        told = {name: SIZES.get(str(expected.get(name)), expected.get(name)) for name in NEEDS}
        assert {name: getattr(facts, name) for name in NEEDS} == told


@pytest.mark.parametrize("name", [name for name, needs in EXPECTED.items() if "least" in needs])
def test_the_fewest_gpus_of_80_gb_that_hold_the_model(name: str) -> None:
    counts = counts_that_fit(by_script(name), 80, 8, 256)
    assert (counts[0] if counts else 0) == EXPECTED[name]["least"]


def test_the_corpus_has_models_to_find() -> None:
    assert sum("parameters" in needs for needs in EXPECTED.values()) >= 30
    assert sum("least" in needs for needs in EXPECTED.values()) >= 20
