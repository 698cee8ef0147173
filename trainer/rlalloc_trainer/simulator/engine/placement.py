"""Which nodes a job gets, as select/cons_tres with topology/default chooses them.

Source: ``_eval_nodes_consec`` of src/plugins/topology/common/eval_nodes.c (Slurm 25.11). Nodes that could hold the
job form sets of consecutive ones of equal weight. The set of the lowest weight is taken; among equals one that is
large enough, and of those the one with the fewest CPUs; where none is large enough, the largest, and then again for
the rest. Inside a set the first nodes are taken. A job that does not say how many tasks a node has could use all free
CPUs of a node: its last node is the one with the fewest.
"""

from rlalloc_trainer.simulator.engine.compiled import compiled
from rlalloc_trainer.simulator.engine.records import NOBODY, Flags, Numbers, Record, Records


@compiled
def has_room(nodes: Records, node: int, size: Record) -> bool:
    """Whether ``node`` can hold its part of a job of this ``size`` at this moment."""
    there = nodes[node]
    return bool(
        there["free_gpus"] >= size["gpus_per_node"]
        and there["free_cpus"] >= size["cpus_per_node"]
        and there["free_mem_mib"] >= size["mem_mib_per_node"]
        and there["up"]
        and (size["gpu_type"] == NOBODY or there["gpu_type"] == size["gpu_type"])
    )


@compiled
def could_hold(nodes: Records, node: int, size: Record) -> bool:
    """Whether ``node`` could hold its part of a job of this ``size`` if it were empty and up."""
    there = nodes[node]
    return bool(
        there["gpus"] >= size["gpus_per_node"]
        and there["cpus"] >= size["cpus_per_node"]
        and there["mem_mib"] >= size["mem_mib_per_node"]
        and (size["gpu_type"] == NOBODY or there["gpu_type"] == size["gpu_type"])
    )


@compiled
def find_room(nodes: Records, allowed: Flags, size: Record, room: Flags) -> int:
    """Mark in ``room`` the allowed nodes with room for a job of ``size`` and return how many there are."""
    found = 0
    for node in range(len(nodes)):
        room[node] = allowed[node] and has_room(nodes, node, size)
        found += room[node]
    return found


@compiled
def choose(nodes: Records, room: Flags, size: Record, chosen: Numbers, least_loaded: bool) -> bool:
    """Fill ``chosen`` with as many of the nodes in ``room`` as ``size`` wants; False if there are too few.

    ``room`` is used up.
    """
    wanted = size["nodes"]
    taken = 0
    while taken < wanted:
        if least_loaded:
            first = _least_loaded(nodes, room)
            last = first
        else:
            first, last = _best_set(nodes, room, size, wanted - taken)
        if first == NOBODY:
            return False
        if wanted - taken == 1 and not size["names_tasks"]:
            first = _fewest_cpus(nodes, room, first, last)
        node = first
        while node <= last and taken < wanted:
            room[node] = False
            chosen[taken] = node
            taken += 1
            node += 1
    return True


@compiled
def _best_set(nodes: Records, room: Flags, size: Record, wanted: int) -> tuple[int, int]:
    """First and last node of the best set of consecutive nodes in ``room``, (NOBODY, NOBODY) if there is none."""
    best_first, best_last = NOBODY, NOBODY
    best_weight, best_cpus, best_enough = 0, 0, False
    node, count = 0, len(nodes)
    while node < count:
        if not room[node]:
            node += 1
            continue
        first, weight = node, nodes[node]["weight"]
        cpus: int = 0
        while node < count and room[node] and nodes[node]["weight"] == weight:
            cpus += size["cpus_per_node"] if size["names_tasks"] else nodes[node]["free_cpus"]
            node += 1
        enough = node - first >= wanted
        if best_first == NOBODY or weight < best_weight:
            better = True
        elif weight > best_weight:
            better = False
        elif enough:
            better = not best_enough or cpus < best_cpus
        else:
            better = not best_enough and cpus > best_cpus
        if better:
            best_first, best_last = first, node - 1
            best_weight, best_cpus, best_enough = weight, cpus, enough
    return best_first, best_last


@compiled
def _fewest_cpus(nodes: Records, room: Flags, first: int, last: int) -> int:
    best = first
    for node in range(first, last + 1):
        if room[node] and nodes[node]["free_cpus"] < nodes[best]["free_cpus"]:
            best = node
    return best


@compiled
def _least_loaded(nodes: Records, room: Flags) -> int:
    """The node of the lowest weight and, among equals, with the most free CPUs (CR_LLN)."""
    best = NOBODY
    for node in range(len(nodes)):
        if room[node] and (
            best == NOBODY
            or nodes[node]["weight"] < nodes[best]["weight"]
            or (
                nodes[node]["weight"] == nodes[best]["weight"] and nodes[node]["free_cpus"] > nodes[best]["free_cpus"]
            )
        ):
            best = node
    return best
