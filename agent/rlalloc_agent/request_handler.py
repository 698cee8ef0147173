"""From the bytes of a request to the reply to it: no sockets here."""

import logging
import math
import time
from collections import Counter

import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc import __version__
from rlalloc.errors import MessageError, MissingInputsError
from rlalloc.job import SHARES, Shares
from rlalloc.messages import (
    MAX_BATCH,
    AgentState,
    Ask,
    Decide,
    Decided,
    PolicyAnswer,
    Refused,
    Reply,
    decode_request,
)
from rlalloc.observation import LARGEST_FEATURE, EncodedBatch
from rlalloc_agent.served_policy import ServedPolicy

log = logging.getLogger(__name__)


class RefusalError(Exception):
    """A request that will not be answered; ``code`` is one word for programs, the text is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestHandler:
    """Answers requests with the served policy, and counts what it did.

    Counters: ``decide``, ``jobs_decided``, ``ask``, and ``refused_<code>`` with the codes ``malformed``,
    ``deadline``, ``inputs``, ``batch`` and ``observation``.
    """

    def __init__(self, policy: ServedPolicy, counters: Counter[str], seed: int | None = None) -> None:
        self._policy = policy
        self._counters = counters
        self._started_s = time.time()
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def answer(self, data: bytes) -> Reply:
        """Return the reply to a request, Refused where it cannot be answered. Never raises for what is in it."""
        request_id = ""
        try:
            request = _decode(data)
            request_id = request.request_id
            return self._state(request) if isinstance(request, Ask) else self._decide(request)
        except RefusalError as refusal:
            return self.refuse(request_id, refusal.code, str(refusal))

    def refuse(self, request_id: str, code: str, message: str) -> Refused:
        """Count a refusal and return the reply that says so."""
        counter = f"refused_{code}"
        self._counters[counter] += 1
        log.debug("refused request %r: %s", request_id, message, extra={"counter": counter})
        return Refused(request_id=request_id, code=code, message=message)

    def _state(self, request: Ask) -> AgentState:
        self._counters["ask"] += 1
        return AgentState(
            version=__version__,
            request_id=request.request_id,
            policy_version=self._policy.version,
            started_s=self._started_s,
            counters=dict(self._counters),
            problem=self._policy.problem,
        )

    def _decide(self, request: Decide) -> Decided:
        batch = _batch(request)
        late_s = time.time() - request.deadline_s
        if not late_s <= 0.0:  # NaN is late too
            raise RefusalError(
                "deadline",
                f"nobody is waiting any more: the deadline passed {late_s:.3f} s ago; if this repeats with an agent "
                "on another host, compare the clocks",
            )
        try:
            shares, log_probabilities = self._policy.actor.decide(
                batch, sample=request.sample, generator=self._generator
            )
        except MissingInputsError as err:
            raise RefusalError("inputs", f"{err}: upgrade daemon and agent together") from err
        if not (np.isfinite(shares).all() and np.isfinite(log_probabilities).all()):
            raise RefusalError("observation", "the policy's answer to these questions is not finite")
        self._counters["decide"] += 1
        self._counters["jobs_decided"] += request.jobs
        answers = tuple(
            PolicyAnswer(Shares(*row), log_probability)
            for row, log_probability in zip(shares.tolist(), log_probabilities.tolist(), strict=True)
        )
        return Decided(request_id=request.request_id, policy_version=self._policy.version, answers=answers)


def _decode(data: bytes) -> Decide | Ask:
    try:
        return decode_request(data)
    except MessageError as err:
        raise RefusalError("malformed", str(err)) from err


def _batch(request: Decide) -> EncodedBatch:
    """Return the questions of a request. Raises RefusalError if they are not what encode() makes."""
    if not 0 < request.jobs <= MAX_BATCH:
        raise RefusalError("batch", f"a batch of {request.jobs} jobs: send 1 to {MAX_BATCH}")
    features = _numbers(request.features, (request.jobs, len(request.feature_names)), "features")
    alternatives = _numbers(request.alternatives, (request.jobs, len(request.heuristics), SHARES), "alternatives")
    if not (np.abs(features) <= LARGEST_FEATURE).all():  # NaN fails the comparison too
        raise RefusalError("observation", f"features must be finite and within ±{LARGEST_FEATURE:g}")
    if not ((alternatives >= 0.0) & (alternatives <= 1.0)).all():
        raise RefusalError("observation", "the shares that heuristics answer must be within 0 and 1")
    return EncodedBatch(request.feature_names, features, request.heuristics, alternatives)


def _numbers(content: bytes, shape: tuple[int, ...], what: str) -> NDArray[np.float32]:
    expected = 4 * math.prod(shape)
    if len(content) != expected:
        raise RefusalError("observation", f"{len(content)} bytes of {what}, {expected} expected for {shape[0]} jobs")
    # A copy: torch refuses memory that it may not write to.
    return np.frombuffer(content, dtype="<f4").reshape(shape).astype(np.float32)
