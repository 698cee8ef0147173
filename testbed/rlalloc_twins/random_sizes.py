"""An agent whose policy draws each share by chance: workable sizes of all kinds, within each job's bounds.

``python -m rlalloc_twins.random_sizes --config FILE`` takes the place of rlalloc-agent. SIGTERM ends it.
"""

import argparse
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc.config import load_config
from rlalloc.job import SHARES
from rlalloc.observation import EncodedBatch
from rlalloc_agent.policy_server import PolicyServer
from rlalloc_agent.served_policy import ServedPolicy

VERSION: Final = "random-sizes"
AT_AN_END: Final = 0.4
"""So many shares are at one of the ends of their ranges: the smallest and the largest size are to be seen often."""


class _RandomActor:
    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def decide(
        self,
        batch: EncodedBatch,
        *,
        sample: bool,  # noqa: ARG002 (as a policy's)
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return shares (jobs, SHARES) and log-densities (jobs,)."""
        shape = len(batch.features), SHARES
        shares = np.where(
            self._random.random(shape) < AT_AN_END, self._random.integers(2, size=shape), self._random.random(shape)
        )
        return shares.astype(np.float64), np.zeros(shape[0])


class RandomPolicy(ServedPolicy):
    """Serves sizes by chance, whatever the policy store holds."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, Counter())
        self._draw(seed)

    def refresh(self, *, again: bool = False) -> None:
        """There is no other version."""

    def _draw(self, seed: int) -> None:
        self.actor = _RandomActor(seed)  # type: ignore[assignment]
        self.version = VERSION


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="random_sizes", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    config = load_config(options.config)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    policy = RandomPolicy(config.policy.directory, options.seed)
    with PolicyServer(config.agent.endpoint, policy, Counter()) as server:
        server.serve(stop.is_set)


if __name__ == "__main__":
    main()
