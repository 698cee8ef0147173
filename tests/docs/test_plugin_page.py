"""The plugin's page explains every word of a tag that is not from the configuration's tables."""

import re
from pathlib import Path

import pytest

from rlalloc.scripts.script_context import ARGUMENTS, COMPARES, FILE, WRITES
from rlalloc.scripts.script_words import STATES, TOO_LONG

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("word", [ARGUMENTS, COMPARES, FILE, WRITES, STATES, TOO_LONG])
def test_words_that_no_table_has_are_explained(word: str) -> None:
    page = (ROOT / "slurm_plugin" / "README.md").read_text()
    assert re.search(rf"`(?:words=)?{re.escape(word)}[^`]*`", page)
