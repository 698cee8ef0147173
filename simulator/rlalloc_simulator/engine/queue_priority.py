"""The order of the queue: priority/basic and priority/multifactor with Fair Tree.

Sources: src/plugins/priority/basic/priority_basic.c, multifactor/priority_multifactor.c and multifactor/fair_tree.c.
As in Slurm, a job's priority is set when it becomes eligible and again every PriorityCalcPeriod; jobs of a partition
of higher PriorityTier come first, and among equals the job of the lower number. Usage counts CPU-seconds (Slurm's
default billing) and halves every PriorityDecayHalfLife.
"""

import numpy as np

from rlalloc_simulator.engine.compilation import compiled, compiled_for_python
from rlalloc_simulator.engine.engine_records import NOBODY, PENDING, Flags, Reals, World


@compiled
def enqueue(world: World, number: int) -> None:
    """Set the priority of a job that became eligible, and put it into the queue."""
    world.jobs[number]["priority"] = _priority(world, number)
    clock = world.clock[0]
    place = _place_for(world, number)
    queued = clock["queued"]
    for later in range(queued, place, -1):
        world.queue[later] = world.queue[later - 1]
    world.queue[place] = number
    clock["queued"] = queued + 1


@compiled
def dequeue(world: World, number: int) -> None:
    """Take a pending job out of the queue."""
    clock = world.clock[0]
    queued = clock["queued"] - 1
    for place in range(_place_for(world, number), queued):
        world.queue[place] = world.queue[place + 1]
    clock["queued"] = queued


@compiled_for_python
def place_in_queue(world: World, number: int) -> int:
    """Where a job stands in the queue, or would stand by the priority that it would have now."""
    if world.jobs[number]["state"] != PENDING:
        world.jobs[number]["priority"] = _priority(world, number)
    return _place_for(world, number)


@compiled
def calculate(world: World) -> bool:
    """Decay usage, set all priorities anew and sort the queue; return whether its order has changed."""
    clock, rules = world.clock[0], world.rules[0]
    now_s = clock["now_s"]
    count_usage(world)
    decay = 0.5 ** ((now_s - clock["last_calculation_s"]) / rules["decay_half_life"])
    for user in range(len(world.users)):
        world.users[user]["usage"] *= decay
    clock["last_calculation_s"] = now_s
    _fair_tree(world)
    queued = clock["queued"]
    for place in range(queued):
        number = world.queue[place]
        world.jobs[number]["priority"] = _priority(world, number)
    changed = False
    for place in range(1, queued):
        number = world.queue[place]
        if _comes_before(world, number, world.queue[place - 1]):
            changed = True
            break
    if changed:
        _sort(world, queued)
    return changed


@compiled
def count_usage(world: World) -> None:
    """Charge users for what their running jobs have held since the last call."""
    clock = world.clock[0]
    elapsed_s = clock["now_s"] - clock["last_usage_s"]
    clock["last_usage_s"] = clock["now_s"]
    if elapsed_s > 0:
        for user in range(len(world.users)):
            world.users[user]["usage"] += world.users[user]["billing_rate"] * elapsed_s


@compiled
def _priority(world: World, number: int) -> float:
    job, size, rules = world.jobs[number], world.sizes[number], world.rules[0]
    if not rules["multifactor"]:
        return float(-number - job["nice"])  # priority/basic counts down from job to job
    age = min(1.0, max(0.0, (world.clock[0]["now_s"] - job["accrue_s"]) / rules["max_age"]))
    part = (
        size["nodes"] / len(world.nodes) + size["nodes"] * size["cpus_per_node"] / world.clock[0]["total_cpus"]
    ) / 2
    if rules["favor_small"]:
        part = 1.0 - part
    total = (
        rules["weight_age"] * age
        + rules["weight_fairshare"] * world.users[job["user"]]["factor"]
        + rules["weight_job_size"] * part
        + rules["weight_partition"] * world.partitions[size["partition"]]["priority_factor"]
        + rules["weight_qos"] * job["qos_factor"]
        - job["nice"]
    )
    return float(max(1.0, np.floor(total)))  # 0 would be a held job


@compiled
def _comes_before(world: World, number: int, other: int) -> bool:
    one, two = world.jobs[number], world.jobs[other]
    one_tier = world.partitions[world.sizes[number]["partition"]]["tier"]
    two_tier = world.partitions[world.sizes[other]["partition"]]["tier"]
    if one_tier != two_tier:
        return bool(one_tier > two_tier)
    if one["priority"] != two["priority"]:
        return bool(one["priority"] > two["priority"])
    return number < other


@compiled
def _place_for(world: World, number: int) -> int:
    """Where a job stands, or is to stand, in the sorted queue."""
    low, high = 0, world.clock[0]["queued"]
    while low < high:
        middle = (low + high) // 2
        if _comes_before(world, world.queue[middle], number):
            low = middle + 1
        else:
            high = middle
    return int(low)


@compiled
def _sort(world: World, queued: int) -> None:
    """Sort the queue in place (Shell 1959, gaps of Knuth 1973): it is nearly sorted as a rule."""
    gap = 1
    while gap < queued // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(gap, queued):
            number, there = world.queue[place], place
            while there >= gap and _comes_before(world, number, world.queue[there - gap]):
                world.queue[there] = world.queue[there - gap]
                there -= gap
            world.queue[there] = number
        gap //= 3


@compiled
def _fair_tree(world: World) -> None:
    """Rank users by their account's shares over usage, then by their own; the factor is rank over users."""
    users, accounts = len(world.users), len(world.accounts)
    account_usage = np.zeros(accounts)
    account_user_shares = np.zeros(accounts)
    for user in range(users):
        account_usage[world.users[user]["account"]] += world.users[user]["usage"]
        account_user_shares[world.users[user]["account"]] += world.users[user]["shares"]
    all_usage, all_shares = account_usage.sum(), 0.0
    for account in range(accounts):
        all_shares += world.accounts[account]["shares"]
    account_level = np.empty(accounts)
    for account in range(accounts):
        account_level[account] = _level(
            world.accounts[account]["shares"] / all_shares, account_usage[account], all_usage
        )
    remaining = np.ones(users, dtype=np.bool_)
    level = np.empty(users)
    for user in range(users):
        there = world.users[user]["account"]
        share = world.users[user]["shares"] / account_user_shares[there]
        level[user] = _level(share, world.users[user]["usage"], account_usage[there])
    rank, given = users, 0
    last = NOBODY
    while given < users:
        best = _most_deserving(world, remaining, account_level, level)
        remaining[best] = False
        alike = (
            last != NOBODY
            and world.users[best]["account"] == world.users[last]["account"]
            and level[best] == level[last]
        )
        if not alike:  # users of one account at the same level share a rank
            rank = users - given
        world.users[best]["factor"] = rank / users
        given += 1
        last = best


@compiled
def _level(share: float, usage: float, siblings_usage: float) -> float:
    """Level fair-share: normalised shares over normalised usage; infinite without usage."""
    if usage <= 0.0:
        return np.inf
    return share / (usage / siblings_usage)


@compiled
def _most_deserving(world: World, remaining: Flags, account_level: Reals, level: Reals) -> int:
    best = NOBODY
    for user in range(len(world.users)):
        if not remaining[user]:
            continue
        if best == NOBODY:
            best = user
            continue
        mine, theirs = world.users[user]["account"], world.users[best]["account"]
        if account_level[mine] != account_level[theirs]:
            if account_level[mine] > account_level[theirs]:
                best = user
        elif mine == theirs:
            if level[user] > level[best]:
                best = user
        elif mine < theirs:  # Fair Tree merges accounts at the same level; here the first one goes first
            best = user
    return best
