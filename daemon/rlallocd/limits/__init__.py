"""What a user could have submitted: pure checks of a decision against the site's limits (docs/limits.md)."""

from rlallocd.limits.check import SiteView, obstacle
from rlallocd.limits.ladder import rungs

__all__ = ["SiteView", "obstacle", "rungs"]
