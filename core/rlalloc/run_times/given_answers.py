"""What a predictor answered, and what it learned from its answers when the jobs ended; also as bytes, for a restart.

The bytes are a digest, and numbers and keys in msgpack: reading them runs no code. They hold names as the jobs had
them: pseudonyms where the site wants these.
"""

import math
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import PolicyError
from rlalloc.past_job import PastJob, can_be_learned
from rlalloc.run_times.bursts import Burst, Bursts
from rlalloc.run_times.expert_mix import ANSWERS, COLUMNS, ExpertMix
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.run_times.recent_runs import Key, user_and_alike

MOST_ANSWERS: Final = 50_000
"""Jobs whose answers are kept."""
_DIGEST_BYTES: Final = 16
_Submission = tuple[Key, str, int]
_StoredKey = tuple[str | int | float | None, ...]


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of ``losses`` for each of ``groups``, one of ``answers`` for each of ``submissions``: 64-bit floats.

    ``bursts`` are the last ones of jobs alike. ``kinds`` are the COLUMNS. Another version of rlalloc may have others.
    """

    kinds: tuple[str, ...]
    pseudonyms: bool
    until_s: float
    at_end: list[str]
    groups: list[_StoredKey]
    losses: bytes
    bursts: list[tuple[_StoredKey, list[Burst]]]
    submissions: list[tuple[_StoredKey, str, int]]
    answers: bytes


class GivenAnswers:
    """Answers for the jobs that were seen last. Memory is bounded: MOST_ANSWERS, and what the mix keeps.

    ``changes`` counts what was answered and learned.
    """

    def __init__(self) -> None:
        self.mix = ExpertMix()
        self.changes = 0
        self._answers: dict[_Submission, NDArray[np.float64]] = {}
        self._before_restart: frozenset[_Submission] = frozenset()
        self._until_s, self._at_end = -math.inf, set[str]()

    def remember(self, jobs: Sequence[JobFacts], answers: NDArray[np.float64]) -> None:
        """Keep answers for these jobs until they end, a row each. Those from before a restart are not replaced."""
        for facts, row in zip(jobs, answers, strict=True):
            submission = _submission(facts)
            if submission not in self._before_restart:
                self._answers.pop(submission, None)
                self._answers[submission] = row.copy()  # not a view, which would keep all rows of the batch
        while len(self._answers) > MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self.changes += len(jobs)

    def ended(self, job: PastJob) -> None:
        """Learn from a job's end, once: past jobs are read again every day, and after a restart."""
        answers = self._answers.get(_submission(job))
        if self._until_s > time.time():  # a clock was ahead: else no end before that one would count
            self._until_s, self._at_end = -math.inf, set()
        told_before = job.ended_s < self._until_s or (job.ended_s == self._until_s and job.job_id in self._at_end)
        if answers is not None and not told_before and can_be_learned(job):
            if job.ended_s > self._until_s:
                self._until_s, self._at_end = job.ended_s, set()
            self._at_end.add(job.job_id)
            log_run = math.log2(max(job.run_s_as_requested, 1.0))
            self.mix.learn(user_and_alike(job), answers, job.submitted_s, log_run)
            self.changes += 1

    def packed(self, *, pseudonyms: bool) -> bytes:
        """All of it as bytes. Raises ValueError for a name that is not text."""
        groups, losses = self.mix.table()
        stored = _Stored(
            kinds=COLUMNS,
            pseudonyms=pseudonyms,
            until_s=self._until_s,
            at_end=sorted(self._at_end),
            groups=groups,  # type: ignore[arg-type]  # keys are of text and numbers
            losses=losses.tobytes(),
            bursts=self.mix.bursts.table(),  # type: ignore[arg-type]
            submissions=list(self._answers),  # type: ignore[arg-type]
            answers=np.array(list(self._answers.values()), np.float64).tobytes(),
        )
        content = msgspec.msgpack.encode(stored)
        return _digest(content) + content

    @classmethod
    def unpacked(cls, content: bytes, *, pseudonyms: bool) -> "GivenAnswers":
        """The same from bytes. Raises PolicyError if they are damaged, or if version or ``pseudonyms`` differ."""
        digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(content):
            raise PolicyError("it is damaged")
        try:
            stored = msgspec.msgpack.decode(content, type=_Stored)
            if stored.kinds != COLUMNS:
                raise PolicyError("another version of rlalloc wrote it")
            if stored.pseudonyms != pseudonyms:
                raise PolicyError("history.pseudonymize has changed since")
            losses = np.frombuffer(stored.losses).reshape(-1, len(ANSWERS) + 1)
            answers = np.frombuffer(stored.answers).reshape(-1, len(COLUMNS))
            given = cls()
            given.mix = ExpertMix.of(stored.groups, losses)
            given.mix.bursts = Bursts(stored.bursts)
            given._answers = {key: row.copy() for key, row in zip(stored.submissions, answers, strict=True)}
        except (msgspec.DecodeError, ValueError) as err:
            raise PolicyError(f"another version of rlalloc wrote it ({err})") from err
        if not (np.isfinite(losses).all() and np.isfinite(answers).all()):
            raise PolicyError("not all of its numbers are finite")
        given._until_s, given._at_end = stored.until_s, set(stored.at_end)
        given._before_restart = frozenset(given._answers)
        return given


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _submission(facts: JobFacts) -> _Submission:
    """What tells a submission from others, in the queue as in accounting; tasks of an array are one."""
    return user_and_alike(facts)[1], facts.name, int(facts.submitted_s)
