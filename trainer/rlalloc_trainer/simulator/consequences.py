"""What became of decisions in the simulator, in the words of ``rlalloc.reward``: as a site would have recorded it."""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.heuristics import Heuristic
from rlalloc.job import JobView, Shares
from rlalloc.observation import FEATURES, encode
from rlalloc.reward import Consequence, reward
from rlalloc.view import ClusterView, expected_run_time_s
from rlalloc_trainer.simulator.driving import Driven, drive
from rlalloc_trainer.simulator.engine import Simulator, table_of
from rlalloc_trainer.simulator.engine.records import COMPLETED, OUT_OF_MEMORY, STATE_NAMES, TIMEOUT
from rlalloc_trainer.simulator.from_stream import Stream

SAY_SOMETHING: Final = (COMPLETED, TIMEOUT, OUT_OF_MEMORY)
"""Ends of a run that tell what its size was worth; a job that its user cancelled or whose program failed does not."""


class Observed(msgspec.Struct, frozen=True):
    """Decisions as a site would store them: ``observation`` (decisions, features) and ``reward`` (decisions,)."""

    observation: NDArray[np.float32]
    reward: NDArray[np.float32]


def observed(stream: Stream, policy: Heuristic) -> Observed:
    """Run a stream under ``policy`` and return the decisions whose outcomes say something."""
    observations = np.full((len(stream.jobs), len(FEATURES)), np.nan, dtype=np.float32)
    totals = np.ones((len(stream.jobs), 3))
    asked = [-1]

    def observing(job: JobView, view: ClusterView) -> Shares:
        observations[asked[0]], totals[asked[0]] = encode(job, view), view.totals
        return policy(job, view)

    def remember(waiting: list[int]) -> None:
        asked[0] = waiting[0]

    simulator = Simulator(stream.site, table_of(stream.jobs, stream.site))
    driven = drive(simulator, stream.jobs, observing, before=remember)
    said = np.isin(driven.outcomes["first_state"], SAY_SOMETHING) & np.isfinite(driven.outcomes["first_end_s"])
    numbers = np.flatnonzero(said & np.isfinite(observations[:, 0]))
    rewards = [_reward(stream, driven, int(number), totals[number]) for number in numbers]
    return Observed(observations[numbers], np.array(rewards, dtype=np.float32))


def _reward(stream: Stream, driven: Driven, number: int, totals: NDArray[np.float64]) -> float:
    outcome, request = driven.outcomes[number], stream.jobs[number].request
    nodes, *per_node = driven.sizes[number, :4]
    consequence = Consequence(
        state=STATE_NAMES[outcome["first_state"]],
        wait_s=float(outcome["first_start_s"] - outcome["submit_s"]),
        run_time_s=float(outcome["first_end_s"] - outcome["first_start_s"]),
        dominant_share=float((nodes * np.array(per_node) / np.maximum(totals, 1.0)).max()),
        queued=int(outcome["queued"]),
        reference_s=expected_run_time_s(request, request),
    )
    return reward(consequence)
