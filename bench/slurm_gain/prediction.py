"""What the simulator says that a stream's jobs will take, before any run with rlalloc."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from rlalloc.heuristics import Heuristic
from rlalloc_trainer.streams import Header, StreamJob
from rlalloc_trainer.validation.app import shipped_policy
from rlalloc_trainer.validation.chaos import TIMES, moved
from rlalloc_trainer.validation.settings import PRICE_EF, Mode, ValidationSettings
from rlalloc_trainer.validation.simulated import simulate_at

BEGINS_S: Final = 3660.0
"""On the engine's clock: a minute into an hour, so that submissions can be moved either way."""


def policies() -> dict[Mode, Heuristic | None]:
    """What decides in each mode: exactly what the agent answers there. Raises PolicyError."""
    return {"off": None, "price-ef": shipped_policy(PRICE_EF), "enforce": shipped_policy()}


def predictions_s(
    header: Header,
    jobs: Sequence[StreamJob],
    settings: ValidationSettings,
    deciding: Mapping[Mode, Heuristic | None],
    launch_s: float,
) -> dict[Mode, tuple[float, ...]]:
    """Return mean JCT [s] by mode in each of TIMES runs, submissions being those of the stream's file.

    Each run has its submissions moved by up to half a second: how a real site's clocks will lie to them is not known
    beforehand. The mean of the runs is the prediction. ``launch_s`` is what a node needs to launch a job.
    """
    planned_s = {job.id: BEGINS_S + job.submit_s for job in jobs}
    return {
        mode: tuple(
            fmean(
                job.jct_s
                for job in simulate_at(header, jobs, settings, moved(planned_s, seed), mode, policy, launch_s).jobs
            )
            for seed in range(TIMES)
        )
        for mode, policy in deciding.items()
    }
