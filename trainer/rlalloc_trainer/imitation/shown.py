"""What the shipped policy's actors are shown before they learn: the best expert for either order of the queue.

Where the queue keeps its own order that is steep-price, where shorter jobs go first price-EF (docs/learning.md
compares them). The actor, a residual around price-EF, learns from it what to do differently, and where.
"""

from typing import Final

import msgspec
import numpy as np

from rlalloc.heuristics import BASE, steep_price
from rlalloc.heuristics.order import Ordered
from rlalloc.job import SHARES, JobView, Shares
from rlalloc.observation import FEATURES, encode
from rlalloc.view import ClusterView
from rlalloc_trainer.replay import FloatArray
from rlalloc_trainer.simulator.driving import drive
from rlalloc_trainer.simulator.engine import Simulator, table_of
from rlalloc_trainer.simulator.from_stream import Stream

CALM_PART: Final = 0.5
"""Of the decisions before which nobody waited, the part that is shown: they are many, and alike."""
_STEEP: Final = Ordered(steep_price)


class Shown(msgspec.Struct, frozen=True):
    """Decisions of an expert: ``observation`` (rows, features), ``shares`` (rows, shares)."""

    observation: FloatArray
    shares: FloatArray


def expert(job: JobView, view: ClusterView) -> Shares:
    """Answer as the best expert for this site's order does."""
    return BASE(job, view) if view.urgency_counts else _STEEP(job, view)


def show(stream: Stream, generator: np.random.Generator) -> Shown:
    """Let the expert decide a stream, and return what it saw and did."""
    rows: list[FloatArray] = []
    answers: list[tuple[float, ...]] = []

    def decide(job: JobView, view: ClusterView) -> Shares:
        shares = expert(job, view)
        if view.crowd or generator.random() < CALM_PART:
            rows.append(encode(job, view))
            answers.append(msgspec.structs.astuple(shares))
        return shares

    drive(Simulator(stream.site, table_of(stream.jobs, stream.site)), stream.jobs, decide)
    return Shown(
        np.array(rows, dtype=np.float32).reshape(-1, len(FEATURES)),
        np.array(answers, dtype=np.float32).reshape(-1, SHARES),
    )
