"""What the plugin's words tell of an LLM is what the whole script tells, for every script of the corpus."""

import pytest

from rlalloc.config import Config
from rlalloc.llm.facts import facts_of_words
from rlalloc.llm.named_files import facts_of_script
from rlalloc.script_words import read_script

from .hostile_scripts import corpus

SCRIPTS = corpus()
TABLE = Config().word_table
FIELDS = (
    "model",
    "architecture",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "global_batch",
    "sequence",
    "precision",
    "checkpointing",
    "lora_rank",
    "weights",
    "max_length",
    "memory_fraction",
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_tell_what_the_script_tells(name: str) -> None:
    words = read_script(SCRIPTS[name], TABLE).words
    assert words is not None
    by_words, by_script = facts_of_words(words), facts_of_script(SCRIPTS[name].decode("utf-8", errors="replace"))
    assert {field: getattr(by_words, field) for field in FIELDS} == {
        field: getattr(by_script, field) for field in FIELDS
    }


def test_the_corpus_has_models_to_find() -> None:
    found = [facts_of_words(read_script(script, TABLE).words or ()) for script in SCRIPTS.values()]
    assert sum(facts.architecture is not None for facts in found) >= 9
