"""What a user could have submitted: checks of a decision against the site's limits (docs/explanation/limits.md)."""

from rlallocd.limits.limit_check import SiteView, obstacle
from rlallocd.limits.limit_reasons import is_of_a_size, may_be_ours
from rlallocd.limits.shares_towards_request import shares_towards_request

__all__ = [
    "SiteView",
    "is_of_a_size",
    "may_be_ours",
    "obstacle",
    "shares_towards_request",
]
