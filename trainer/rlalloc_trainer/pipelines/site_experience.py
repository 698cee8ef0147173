"""What a site went through, as the trainer needs it."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.job import SHARES, Shares
from rlalloc.observation import FEATURES, SCHEMA_VERSION, Observation
from rlalloc.store import Experience


def usable(experiences: Sequence[Experience]) -> list[Experience]:
    """Return those that can be learned from, in the order of decision.

    Their observation is of this schema, their job started, and it is known which shares were in effect.
    """
    return sorted(
        (
            experience
            for experience in experiences
            if experience.decision.observation_schema == SCHEMA_VERSION
            and experience.decision.observation is not None
            and len(experience.decision.observation) == 4 * len(FEATURES)
            and experience.decision.bounds is not None
            and experience.outcome.executed_shares is not None
            and experience.outcome.costs is not None
            and experience.outcome.started_s is not None
            and experience.outcome.gpus > 0
        ),
        key=lambda experience: experience.decision.decided_s,
    )


def split_by_time(
    experiences: Sequence[Experience], held_out_fraction: float
) -> tuple[list[Experience], list[Experience]]:
    """Return the earlier part, to learn from, and the later part, to judge on."""
    held_out = round(len(experiences) * held_out_fraction)
    cut = len(experiences) - held_out
    return list(experiences[:cut]), list(experiences[cut:])


def observation_of(experience: Experience) -> Observation:
    """Return the observation (features,) that a usable experience was decided on."""
    return np.frombuffer(experience.decision.observation or b"", dtype="<f4").astype(np.float32)


def run_time_s(experience: Experience) -> float:
    """Return how long a usable experience's job ran."""
    started_s, ended_s = experience.outcome.started_s, experience.outcome.ended_s
    return ended_s - (ended_s if started_s is None else started_s)


def shares_of(experiences: Sequence[Experience]) -> NDArray[np.float32]:
    """Return the shares (rows, SHARES) that were in effect in usable experiences."""
    executed = [experience.outcome.executed_shares or Shares(1.0, 1.0, 1.0) for experience in experiences]
    return np.array([msgspec.structs.astuple(shares) for shares in executed], np.float32).reshape(-1, SHARES)


def observations_of(experiences: Sequence[Experience]) -> NDArray[np.float32]:
    """Return the observations (rows, features) of usable experiences."""
    rows = [observation_of(experience) for experience in experiences]
    return np.array(rows, np.float32).reshape(-1, len(FEATURES))


def costs_of(experiences: Sequence[Experience], terms: Sequence[str]) -> NDArray[np.float64]:
    """Return what usable experiences cost by term (rows, terms), over each job's scale; NaN where it is not known."""
    rows = [[(experience.outcome.costs or {}).get(name) for name in terms] for experience in experiences]
    return np.array(rows, dtype=np.float64).reshape(-1, len(terms))
