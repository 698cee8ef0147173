"""SAC on the same jobs: it sees the situation as it is, not its bin, and answers shares."""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_trainer.online import OnlineSettings, plain_training
from rlalloc_trainer.parallelism.environment import SHARES, ByShares, PlanEnvironment, plan_number
from rlalloc_trainer.parallelism.oracle import DISCOUNT
from rlalloc_trainer.parallelism.performance import FloatArray
from rlalloc_trainer.plain_actor import PlainActor
from rlalloc_trainer.sac import plain_settings

_HIDDEN: Final = (64, 64)


class SacPlans:
    """The plans that a SAC actor's mean shares stand for."""

    def __init__(self, actor: PlainActor) -> None:
        self._actor = actor

    def choose(self, situations: FloatArray) -> NDArray[np.int64]:
        """Return the number of the plan for each of ``situations`` (n, 4)."""
        shares, _ = self._actor.decide(situations.astype(np.float32), sample=False)
        return np.array([plan_number(row) for row in shares])


def learn_sac(decisions: int, seed: int) -> SacPlans:
    """Learn from that many decisions, of eight episodes side by side. The same seed gives the same actor.

    Rewards of plans differ by hundredths: the temperature starts low and settles fast, and so do the networks.
    """
    settings = msgspec.structs.replace(
        plain_settings(SHARES),
        batch=128,
        critic_rate=1e-3,
        actor_rate=1e-3,
        temperature_rate=1e-3,
        temperature=0.05,
        target_entropy=-3.0 * SHARES,
        tau=0.01,
    )
    online = OnlineSettings(gamma=DISCOUNT, learning_starts=min(2000, decisions // 4), train_every=4)
    training = plain_training([ByShares(PlanEnvironment()) for _ in range(8)], settings, online, _HIDDEN, seed)
    training.run(decisions)
    return SacPlans(training.sac.actor)
