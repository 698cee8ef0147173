"""What an outcome was worth."""

import msgspec
import pytest

from rlalloc.reward import WORST_REWARD, Consequence, reward

GOOD = Consequence(state="COMPLETED", wait_s=60, run_time_s=600, dominant_share=0.25, queued=4, reference_s=1000)


def test_less_waiting_running_and_taking_is_better() -> None:
    for worse in ({"wait_s": 600}, {"run_time_s": 1200}, {"dominant_share": 0.5}, {"queued": 40}):
        assert reward(msgspec.structs.replace(GOOD, **worse)) < reward(GOOD)


@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY"])
def test_a_job_killed_for_its_size_is_the_worst(state: str) -> None:
    assert reward(msgspec.structs.replace(GOOD, state=state)) == WORST_REWARD


def test_bounded() -> None:
    assert reward(msgspec.structs.replace(GOOD, wait_s=1e9)) == WORST_REWARD
    assert reward(msgspec.structs.replace(GOOD, wait_s=0, run_time_s=0)) == 0
