"""Planning: an answer and its neighbours are tried in sampled futures first."""

from rlalloc_research.planning.planning_policy import Planned, PlanningSettings

__all__ = ["Planned", "PlanningSettings"]
