"""Planning: an answer and its neighbours are tried in sampled futures before one is given (docs/planning.md)."""

from rlalloc_trainer.planning.policy import Planned, PlanningSettings

__all__ = ["Planned", "PlanningSettings"]
