"""A monotonic clock that a test moves by hand."""

from dataclasses import dataclass


@dataclass
class HandClock:
    """Seconds; call it for what it shows."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s
