"""How far two runs are apart, on runs that can be reckoned by hand."""

import math

import msgspec
import numpy as np
import pytest

from rlalloc_validation.job_comparison import compare, figures_of, rank_correlation
from rlalloc_validation.validation_settings import ValidationError
from tests.testbed.validation.example_runs import SIZE, pairs, ran, run


def test_ranks() -> None:
    """Spearman's own formula, 1 - 6·Σd²/(n³ - n), and the mean rank for ties."""
    assert rank_correlation(np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 30.0, 20.0, 40.0])) == pytest.approx(0.8)
    assert rank_correlation(np.array([1.0, 5.0, 9.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([5.0, 7.0, 9.0])) == pytest.approx(math.sqrt(0.75))
    assert math.isnan(rank_correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])))


def test_figures() -> None:
    real = [ran(1, 0, 0, 10), ran(2, 0, 10, 20), ran(3, 0, 20, 30)]
    engine = [
        ran(1, 0, 0, 10),
        ran(2, 0, 14, 24, state="FAILED"),
        ran(3, 0, 21, 31, size=msgspec.structs.replace(SIZE, gpus_per_node=2)),
    ]
    found = figures_of(pairs(real, engine))
    assert found.jobs == 3
    assert found.wait_s == pytest.approx((10, 35 / 3))
    assert found.wait_error_s == pytest.approx((1, 1 + 0.8 * 3))
    assert found.jct_s == pytest.approx((20, 65 / 3))
    assert found.jct_error == pytest.approx(5 / 60)
    assert found.end_error_s == 1
    assert found.rank == pytest.approx(1.0)
    assert (found.other_state, found.other_size) == (1, 1)
    assert found.missed(interval_s=5) == ("mean JCT +8.3%, at most ±3%",)
    assert len(found.missed(interval_s=0.5)) == 2


def test_a_job_that_never_started_waited_until_its_end() -> None:
    real = [ran(1, 5, None, 25, state="CANCELLED"), ran(2, 6, 30, 40)]
    assert real[0].wait_s == real[0].jct_s == 20
    assert figures_of(pairs(real, real)).wait_error_s == (0, 0)


def test_runs_of_different_workloads_are_refused() -> None:
    with pytest.raises(ValidationError, match="run both again"):
        compare(run(ran(1, 0, 0, 1)), run(ran(2, 0, 0, 1)))
