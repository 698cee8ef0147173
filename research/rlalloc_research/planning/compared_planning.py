"""Policies that plan, compared with those that do not: ``planned:`` in front of a policy's name."""

from typing import Final

import msgspec

from rlalloc.errors import PolicyError
from rlalloc.heuristics import Heuristic
from rlalloc.policy.policies import PolicyStore
from rlalloc.urgency import UrgencyRules
from rlalloc_research.planning.planning_policy import Planned, PlanningSettings
from rlalloc_simulator.comparison.compared_policy import ComparedPolicy
from rlalloc_simulator.comparison.runner import source_digest
from rlalloc_trainer.evaluation.compared_policies import policy_to_compare

PLANNED: Final = "planned:"


class PlannedPolicy(msgspec.Struct, frozen=True):
    """``base``, whose answers are tried in rollouts first."""

    base: ComparedPolicy
    settings: PlanningSettings = PlanningSettings()

    @property
    def digest(self) -> str:
        """The base, the settings, and the sources of planning."""
        settings = msgspec.json.encode(self.settings).decode()
        return f"planned {settings} {source_digest('rlalloc_research.planning')} {self.base.digest}"

    def policy(self, urgency: UrgencyRules) -> Heuristic:
        """Return what decides, new: it remembers a workload's jobs."""
        future = msgspec.structs.replace(self.settings.future, urgency=urgency)
        return Planned(self.base.policy(urgency), msgspec.structs.replace(self.settings, future=future))


def plain_or_planned(name: str, store: PolicyStore | None) -> ComparedPolicy:
    """Return what ``rlalloc evaluate`` knows under the name; planned, with PLANNED in front. Raises PolicyError."""
    plain = name.removeprefix(PLANNED)
    if plain.startswith(PLANNED):
        raise PolicyError(f"no policy {name!r}: write {PLANNED} once")
    policy = policy_to_compare(plain, store)
    return policy if plain == name else PlannedPolicy(policy)
