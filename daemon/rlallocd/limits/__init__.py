"""What a user could have submitted: checks of a decision against the site's limits (docs/explanation/limits.md)."""

from rlallocd.limits.check import SiteView, obstacle
from rlallocd.limits.ladder import rungs
from rlallocd.limits.reasons import may_be_ours

__all__ = ["SiteView", "may_be_ours", "obstacle", "rungs"]
