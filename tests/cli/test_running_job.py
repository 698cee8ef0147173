"""What ``rlalloc explain`` says of a job that runs."""

import msgspec
import pytest

from rlalloc.run_time import RunTimeEstimate
from rlalloc.store.job_story import Chapter
from rlalloc_cli.running_job import remaining_words
from tests.core.test_store import APPLICATION, DECISION

KNOWN = RunTimeEstimate(600.0, 1000.0, 4000.0, "a test")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        # As requested: the median has passed. The odds become 11/9, 3 and 19: 1000 s x odds ^ (ln 4 / ln 9).
        ("restored", "runs for 0:16:40, expected to go on for 0:16:40, 80% between 0:02:15 and 1:30:09"),
        # In a size that takes 1.6 times as long the median is 1,600 s, and lies ahead.
        ("begun", "runs for 0:16:40, expected to go on for 0:14:16, 80% between 0:02:48 and 1:39:39"),
    ],
)
def test_a_running_job_is_expected_to_go_on(state: str, words: str) -> None:
    request = msgspec.structs.replace(DECISION.request, time_limit_s=0)
    assert DECISION.allocation is not None
    allocation = msgspec.structs.replace(DECISION.allocation, time_limit_s=0)
    decision = msgspec.structs.replace(DECISION, request=request, allocation=allocation, run_time=KNOWN)
    application = msgspec.structs.replace(APPLICATION, state=state)
    chapter = Chapter(decision, (application,), None, decision.id, {}, {})
    assert remaining_words(chapter, 1000.0) == words
    unknown = msgspec.structs.replace(chapter, decision=msgspec.structs.replace(decision, run_time=None))
    assert remaining_words(unknown, 1000.0) == ""
