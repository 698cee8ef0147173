"""Features relative to what a job is expected to take: so trees learn from all users' jobs how a user's jobs vary."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.run_times.recent_runs import FEATURES, KINDS, LOG_SECONDS

_OF_LOG_SECONDS: Final = [
    FEATURES.index(name)
    for name in (
        "limit",
        *(f"{kind}_{name}" for kind in KINDS for name in LOG_SECONDS),
        "running_oldest",
        "running_alike_oldest",
        "running_alike_newest",
    )
]
_MEDIANS: Final = [
    FEATURES.index(name) for name in ("user_limit_size_median_of_5", "user_median_of_5", "site_median_of_5")
]
_LIMIT, _USE = FEATURES.index("limit"), FEATURES.index("site_use_median_of_5")
_AN_HOUR: Final = 11.8
RELATIVE_FEATURES: Final = (*FEATURES, "expected")


def relative_to_expected(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return RELATIVE_FEATURES, and log2 of the seconds that each job is expected to take; a row a job.

    Expected is the median of the last five runs with the same user, limit and size; where there are none, of the
    user's, then the limit times the use of the site's last five, then the median of these.
    """
    alike, of_user, of_site = features[:, _MEDIANS].T
    expected = np.full(len(features), _AN_HOUR, np.float32)
    for known in (of_site, features[:, _LIMIT] + features[:, _USE], of_user, alike):
        expected = np.where(np.isnan(known), expected, known)
    relative = np.column_stack([features, expected])
    relative[:, _OF_LOG_SECONDS] -= expected[:, None]
    return relative, expected.astype(np.float64)
