"""A site's experience as arrays for the trainer."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.job import SHARES, Shares
from rlalloc.observation import FEATURES, SCHEMA_ID, EncodedBatch, EncodedQuestion, recalled
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc.store import Experience


def usable(experiences: Sequence[Experience], names: Mapping[int, tuple[str, ...]]) -> list[Experience]:
    """Return those that can be learned from, in the order of decision, each encoded as it would be today.

    Their observation can be read by the ``names`` of features that the store has (``Store.feature_names``), their job
    started, and it is known which shares were in effect. Jobs for which a type of GPU was chosen ran on other nodes
    than those that the policy saw.
    """
    return sorted(
        (
            encoded
            for experience in experiences
            if experience.decision.bounds is not None
            and (experience.decision.allocation is None or experience.decision.allocation.gpu_type is None)
            and experience.outcome.executed_shares is not None
            and experience.outcome.costs is not None
            and experience.outcome.started_s is not None
            and experience.outcome.gpus > 0
            and (encoded := encoded_anew(experience, names)) is not None
        ),
        key=lambda experience: experience.decision.decided_s,
    )


def encoded_anew(experience: Experience, names: Mapping[int, tuple[str, ...]]) -> Experience | None:
    """Return an experience with today's features and heuristics (``recalled``), or None if it cannot be read."""
    decision = experience.decision
    stored = names.get(decision.observation_schema or 0)
    if stored is None or decision.observation is None:
        return None
    question = recalled(stored, decision.observation, decision.alternatives)
    if question is None:
        return None
    return msgspec.structs.replace(
        experience,
        decision=msgspec.structs.replace(
            decision,
            observation_schema=SCHEMA_ID,
            observation=question.features.astype("<f4").tobytes(),
            alternatives=dict(question.alternatives),
        ),
    )


def split_by_time(
    experiences: Sequence[Experience], held_out_fraction: float
) -> tuple[list[Experience], list[Experience]]:
    """Return the earlier part, to learn from, and the later part, to judge on."""
    held_out = round(len(experiences) * held_out_fraction)
    cut = len(experiences) - held_out
    return list(experiences[:cut]), list(experiences[cut:])


def question_of(experience: Experience) -> EncodedQuestion:
    """Return the question that a usable experience was the answer to. Raises ValueError of any other."""
    decision = experience.decision
    question = recalled(FEATURES, decision.observation or b"", decision.alternatives)
    if question is None:
        raise ValueError(f"decision {decision.id} has no observation: see usable()")
    return question


def run_time_s(experience: Experience) -> float:
    """Return how long a usable experience's job ran."""
    started_s, ended_s = experience.outcome.started_s, experience.outcome.ended_s
    return ended_s - (ended_s if started_s is None else started_s)


def shares_of(experiences: Sequence[Experience]) -> NDArray[np.float32]:
    """Return the shares (rows, SHARES) that were in effect in usable experiences."""
    executed = [experience.outcome.executed_shares or Shares(1.0, 1.0, 1.0) for experience in experiences]
    return np.array([msgspec.structs.astuple(shares) for shares in executed], np.float32).reshape(-1, SHARES)


def readable(experiences: Sequence[Experience], inputs: PolicyInputs) -> list[Experience]:
    """Return those usable experiences that have all that a network reads.

    A decision of an earlier rlalloc lacks the answers of heuristics that are newer.
    """
    return [each for each in experiences if inputs.heuristics <= question_of(each).alternatives.keys()]


def observations_of(experiences: Sequence[Experience], inputs: PolicyInputs) -> NDArray[np.float32]:
    """Return what a network reads of one or more ``readable`` experiences, (rows, inputs)."""
    return inputs.rows(EncodedBatch.of([question_of(experience) for experience in experiences]))


def costs_of(experiences: Sequence[Experience], terms: Sequence[str]) -> NDArray[np.float64]:
    """Return what usable experiences cost by term (rows, terms), over each job's scale; NaN where it is not known."""
    rows = [[(experience.outcome.costs or {}).get(name) for name in terms] for experience in experiences]
    return np.array(rows, dtype=np.float64).reshape(-1, len(terms))
