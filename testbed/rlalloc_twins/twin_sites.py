"""One of the twin sites: the same nodes, users and limits, without rlalloc or with it in enforce."""

import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from rlalloc_testbed import FIRST_COME, Installation, compared_site
from rlalloc_twins.floor_plan import USERS
from rlalloc_twins.twin_nodes import FIRST, OTHERS, PARTITIONS
from rlalloc_twins.twin_plan import GRACE_S, Plan, SiteName
from slurm_testbed import Site

HEARTBEAT_S: Final = 20.0
"""With the testbed's usual 2 s, a busy machine lets the intercept file expire, and jobs pass untouched."""
PASS_EVERY_S: Final = 5.0
WITHOUT: Final = ("off", "again")


def site_for(plan: Plan, name: SiteName) -> AbstractContextManager[tuple[Site, Installation | None]]:
    """Start the site of this name, with what belongs on it; all of it ends at the block's end.

    Raises TestbedError.
    """
    looks = {
        "nodes": FIRST.nodes,
        "gpus_per_node": FIRST.gpus,
        "gpu_type": FIRST.gpu_type,
        "cpus_per_node": FIRST.cpus,
        "mem_mib_per_node": FIRST.mem_mib,
        "features": FIRST.features,
        "other_nodes": OTHERS,
        "partitions": PARTITIONS,
        "users": USERS,
        "enforce": "associations,limits,qos,safe" if plan.limits else "associations",
        "release": plan.release,
        "extra_slurm_conf": {"MinJobAge": "7200", "DefMemPerCPU": "2000", **(FIRST_COME if plan.sampled else {})},
    }
    rlalloc = {
        "grace_s": GRACE_S,
        "daemon": {"poll_s": 1.0, "outcomes_every_s": 10.0, "heartbeat_s": HEARTBEAT_S},
        "redecision": {"every_s": PASS_EVERY_S, "leave_alone_s": 1.0, "min_gain": 0.001},
    }
    return compared_site(
        f"twin-{name}-{os.getpid()}",
        looks,
        None if name in WITHOUT else rlalloc,
        agent=_agent(plan) if name == "random" else (),
        environment={"PYTHONPATH": str(Path(__file__).parents[1])},
        prepare=lambda site: _set_limits(site, plan),
    )


def _agent(plan: Plan) -> tuple[str, ...]:
    return sys.executable, "-m", "rlalloc_twins.random_sizes", "--seed", str(plan.seed)


def _set_limits(site: Site, plan: Plan) -> None:
    for user, words in plan.limits.items():
        site.run(["sacctmgr", "--immediate", "modify", "user", user, "set", *words.split()])
