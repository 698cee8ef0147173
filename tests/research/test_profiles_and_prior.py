"""Measured profiles beside what rlalloc computes from the architecture."""

import msgspec
import pytest

from rlalloc.speed.profile_file import AppliesTo
from rlalloc_research.profiles_and_prior import compared
from rlalloc_trainer.profiling.gpt_shapes import model_named
from tests.core.profiles import CONDITIONS, profile

pytestmark = pytest.mark.research


def test_points_of_one_gpu_are_compared() -> None:
    """On an H100, gpt-1.3b was measured at 48,538 tokens/s and 47,814 MiB."""
    conditions = msgspec.structs.replace(
        CONDITIONS,
        model=model_named("gpt-1.3b", 1024),
        micro_batch=8,
        sequence=1024,
        accelerator="NVIDIA H100 80GB HBM3",
    )
    found = compared(msgspec.structs.replace(profile(0.5, AppliesTo(), counts=(1, 2)), conditions=conditions))
    assert [each.point.size.gpus for each in found] == [1, 1, 1, 1]
    assert found[0].tokens_per_s == pytest.approx(48_538, rel=0.05)
    assert found[0].gpu_mib == pytest.approx(47_814, rel=0.05)
