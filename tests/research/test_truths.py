"""Where the truths of the evaluation come from."""

from pathlib import Path

import numpy as np
import pytest

from rlalloc_research.truths import scaling_fit
from rlalloc_research.truths.log_statistics import log_statistics
from rlalloc_simulator.truths.scaling_mixture import bent

pytestmark = pytest.mark.research


@pytest.mark.parametrize(("knee", "exponent"), [(8.0, 0.2), (30.0, 0.6)])
def test_the_fit_finds_what_made_a_curve(knee: float, exponent: float) -> None:
    points = {gpus: 7.0 * bent(gpus, knee, exponent) for gpus in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)}
    found_knee, found, error = scaling_fit._fitted(points)
    assert found == pytest.approx(exponent, abs=0.03)
    assert found_knee == pytest.approx(knee, rel=0.15)
    assert error < 0.02


def test_a_log_whose_users_explain_everything(tmp_path: Path) -> None:
    """Two users, one of jobs of 10 s and one of jobs of 1,000 s: nothing is left for families to explain."""
    generator = np.random.default_rng(0)
    lines = [
        f"{number} {60 * number} 0 {(10, 1000)[number % 2] + generator.integers(3)} 4 -1 -1 4 2000 -1 1 {number % 2} "
        "-1 -1 -1 1 -1 -1"
        for number in range(1, 201)
    ]
    path = tmp_path / "log.swf"
    path.write_text("\n".join(["; UnixStartTime: 1700000000", *lines]))
    found = log_statistics(path)
    assert (found.jobs, found.users) == (200, 2)
    assert found.of_user > 0.6
    assert abs(found.of_family) < 0.01
    assert found.repeats == 1.0
    assert found.families_a_job == pytest.approx(0.01)
    assert found.commonest_limit == 1.0
    assert found.at_limit == 0.0
