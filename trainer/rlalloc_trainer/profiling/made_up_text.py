"""The text of a profile for which nobody named one."""

from pathlib import Path
from typing import Final

import numpy as np

MADE_UP_BYTES: Final = 8 << 20
_WORDS: Final = 20_000


def make_up_text(path: Path) -> None:
    """Write a text of random words, common ones often, as in Zipf's law; the same one each time."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 10, _WORDS)
    letters = generator.integers(ord("a"), ord("z") + 1, (_WORDS, 10)).astype(np.uint8)
    words = [letters[place, :length].tobytes() for place, length in enumerate(lengths)]
    frequency = 1.0 / np.arange(1, _WORDS + 1)
    chosen = generator.choice(_WORDS, MADE_UP_BYTES // 6, p=frequency / frequency.sum())
    aside = path.with_suffix(".new")
    aside.write_bytes(b" ".join(words[place] for place in chosen)[:MADE_UP_BYTES])
    aside.replace(path)
