"""Features relative to what a job is expected to take."""

import math

import numpy as np

from rlalloc.run_times.recent_runs import FEATURES, RecentRuns
from rlalloc.run_times.relative_times import RELATIVE_FEATURES, relative_to_expected
from tests.core.run_times.synthetic_site import synthetic_jobs


def test_where_all_takes_eight_times_as_long_only_what_is_expected_differs() -> None:
    jobs = synthetic_jobs(300)
    recent = RecentRuns()
    for job in jobs:
        recent.add(job)
    features = recent.features(jobs, jobs[-1].ended_s)
    assert not np.isnan(features[:, FEATURES.index("limit")]).all()
    statistics = ("limit", "last", "one_before", "mean_of_2", "median_of_5", "_mean", "shortest", "longest")
    longer = features.copy()
    for column, name in enumerate(FEATURES):
        if (name.endswith(statistics) and "_use_" not in name) or ("running" in name and "est" in name):
            longer[:, column] += 3.0
    (before, expected), (after, expected_longer) = map(relative_to_expected, (features, longer))
    np.testing.assert_allclose(expected_longer, expected + 3.0, rtol=1e-6)
    np.testing.assert_allclose(after[:, :-1], before[:, :-1], atol=1e-4)
    assert before.shape[1] == len(RELATIVE_FEATURES)


def test_what_is_expected_where_little_is_known() -> None:
    names = ("site_median_of_5", "limit", "site_use_median_of_5", "user_median_of_5", "user_limit_size_median_of_5")
    features = np.full((5, len(FEATURES)), math.nan, np.float32)
    for name, first_row, value in zip(names, (1, 2, 2, 3, 4), (9.0, 14.0, -2.0, 7.0, 6.0), strict=True):
        features[first_row:, FEATURES.index(name)] = value
    assert relative_to_expected(features)[1].round(1).tolist() == [11.8, 9.0, 12.0, 7.0, 6.0]
