"""The data of a profile: random windows of a text, read and cut into tokens by the data loader's workers."""

import random
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch.utils.data import Dataset

from rlalloc.errors import ProfileError

_MIXING: Final = np.uint64(0x9E3779B97F4A7C15)


class TokenWindows(Dataset[torch.Tensor]):
    """Windows of ``sequence + 1`` tokens, as many as there are. A token is a pair of bytes, hashed.

    A window differs from item to item but not from run to run. Raises ProfileError if the text is too short.
    """

    def __init__(self, path: Path, sequence: int, vocabulary: int, windows: int) -> None:
        try:
            self._text: np.ndarray = np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as err:
            raise ProfileError(f"--data {path}: cannot be read ({err}); name a file of text") from err
        self._bytes = 2 * (sequence + 1)
        if len(self._text) <= self._bytes:
            raise ProfileError(f"--data {path}: name a file of more than {self._bytes} bytes")
        self._vocabulary = vocabulary
        self._windows = windows

    def __len__(self) -> int:
        return self._windows

    def __getitem__(self, number: int) -> torch.Tensor:
        first = random.Random(number).randrange(len(self._text) - self._bytes)  # noqa: S311 (no secret)
        pairs = np.frombuffer(self._text[first : first + self._bytes].tobytes(), dtype="<u2").astype(np.uint64)
        return torch.from_numpy(((pairs * _MIXING >> np.uint64(32)) % np.uint64(self._vocabulary)).astype(np.int64))
