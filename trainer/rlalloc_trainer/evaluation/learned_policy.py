"""A learned policy that can be compared: plain bytes, so that it can be sent to other processes."""

import hashlib

import msgspec

from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.named import policy_named
from rlalloc.job import JobView, Shares
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.observation import EncodedBatch, encode
from rlalloc.policy.policies import EVERYWHERE, Routing
from rlalloc.urgency import UrgencyRules
from rlalloc.view import ClusterView
from rlalloc_agent.actor import Actor, actor_bytes, actor_from_bytes
from rlalloc_agent.policy_routing import RoutedPolicy
from rlalloc_simulator.comparison.runner import source_digest


class LearnedPolicy(msgspec.Struct, frozen=True):
    """An actor that takes its mean where ``routing`` says so, and the objective of the site that it decides for."""

    content: bytes
    hidden: tuple[int, ...]
    inputs: tuple[str, ...]
    routing: Routing = EVERYWHERE
    objective: Weights = DEFAULT_WEIGHTS

    @classmethod
    def of(cls, actor: Actor, routing: Routing = EVERYWHERE, objective: Weights = DEFAULT_WEIGHTS) -> "LearnedPolicy":
        """Take an actor's parameters as they are now."""
        return cls(actor_bytes(actor), actor.hidden, actor.inputs.names, routing, objective)

    @property
    def digest(self) -> str:
        """SHA-256 over all of it, and over the agent's sources."""
        digest = hashlib.sha256(msgspec.msgpack.encode(self))
        digest.update(source_digest("rlalloc_agent").encode())
        return f"actor {digest.hexdigest()}"

    def policy(self, urgency: UrgencyRules) -> Heuristic:
        """Return what decides: the heuristic itself where the actor is never asked, which saves encoding each job."""
        ever = self.routing.ever(urgency_counts=urgency.nice_band > 0)
        if self.objective == DEFAULT_WEIGHTS and not ever:
            return policy_named(self.routing.heuristic)
        policy = RoutedPolicy(actor_from_bytes(self.content, self.hidden, self.inputs), self.routing)

        def decide(job: JobView, view: ClusterView) -> Shares:
            shares, _ = policy.decide(EncodedBatch.of([encode(job, view, self.objective)]), sample=False)
            return Shares(*shares[0].tolist())

        return decide
