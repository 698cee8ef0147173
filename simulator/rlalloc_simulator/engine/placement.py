"""Which nodes a job gets, as select/cons_tres with topology/default chooses them.

Source: ``_eval_nodes_consec`` of src/plugins/topology/common/eval_nodes.c (Slurm 25.11). Nodes that could hold the
job form sets of consecutive ones of equal weight. The set of the lowest weight is taken; among equals one that is
large enough, and of those the one with the fewest CPUs; where none is large enough, the largest, and then again for
the rest. Inside a set the first nodes are taken. A job that does not say how many tasks a node has could use all free
CPUs of a node: its last node is the one with the fewest.
"""

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import Flags, Numbers, Record, Records


@compiled
def has_room(there: Record, its: Record, free_units: int, size: Record) -> bool:
    """Whether the node ``there`` can hold its part of a job of this ``size`` at this moment.

    ``its`` is what the job's pool says of the node, and so many units of its devices are free.
    """
    gpus = size["gpus_per_node"]
    return bool(
        free_units >= gpus * its["units"]
        and gpus <= its["most"]
        and there["free_cpus"] >= size["cpus_per_node"]
        and there["free_mem_mib"] >= size["mem_mib_per_node"]
        and there["up"]
    )


@compiled
def could_hold(nodes: Records, mine: Records, node: int, size: Record) -> bool:
    """Whether ``node`` could hold its part of a job of this ``size`` if it were empty and up."""
    there = nodes[node]
    return bool(
        mine[node]["most"] >= size["gpus_per_node"]
        and there["cpus"] >= size["cpus_per_node"]
        and there["mem_mib"] >= size["mem_mib_per_node"]
    )


@compiled
def find_room(nodes: Records, free: Numbers, mine: Records, allowed: Flags, size: Record, room: Numbers) -> int:
    """Put into ``room`` the allowed nodes with room for a job of ``size``, ascending; return how many there are."""
    found, gpus = 0, size["gpus_per_node"]
    for node in range(len(nodes)):
        if not allowed[node] or nodes[node]["most_free"] < gpus:  # a quick no for most nodes
            continue
        its = mine[node]
        if has_room(nodes[node], its, free[node, its["column"]], size):
            room[found] = node
            found += 1
    return found


@compiled
def choose(nodes: Records, room: Numbers, found: int, size: Record, chosen: Numbers, least_loaded: bool) -> bool:
    """Fill ``chosen`` with as many of the ``found`` nodes in ``room`` as ``size`` wants; False if there are too few.

    ``room`` (ascending) is used up.
    """
    wanted, taken = size["nodes"], 0
    if found < wanted:
        return False
    while taken < wanted:
        missing = wanted - taken
        if least_loaded:
            first = _least_loaded(nodes, room, found)
            end = first + 1
        else:
            first, end = _best_set(nodes, room, found, size, missing)
            if missing == 1 and not size["names_tasks"]:
                first = _fewest_cpus(nodes, room, first, end)
            end = min(end, first + missing)
        for place in range(first, end):
            chosen[taken] = room[place]
            taken += 1
        if taken < wanted:
            for place in range(end, found):
                room[place - end + first] = room[place]
            found -= end - first
    return True


@compiled
def _best_set(nodes: Records, room: Numbers, found: int, size: Record, wanted: int) -> tuple[int, int]:
    """Where in ``room`` the best set of consecutive nodes begins and ends."""
    best_first, best_end = 0, 0
    best_weight, best_cpus, best_enough = 0, 0, False
    place = 0
    while place < found:
        first, weight = place, nodes[room[place]]["weight"]
        cpus: int = 0
        while place < found and room[place] - room[first] == place - first and nodes[room[place]]["weight"] == weight:
            cpus += size["cpus_per_node"] if size["names_tasks"] else nodes[room[place]]["free_cpus"]
            place += 1
        enough = place - first >= wanted
        if best_end == 0 or weight < best_weight:
            better = True
        elif weight > best_weight:
            better = False
        elif enough:
            better = not best_enough or cpus < best_cpus
        else:
            better = not best_enough and cpus > best_cpus
        if better:
            best_first, best_end = first, place
            best_weight, best_cpus, best_enough = weight, cpus, enough
    return best_first, best_end


@compiled
def _fewest_cpus(nodes: Records, room: Numbers, first: int, end: int) -> int:
    best = first
    for place in range(first, end):
        if nodes[room[place]]["free_cpus"] < nodes[room[best]]["free_cpus"]:
            best = place
    return best


@compiled
def _least_loaded(nodes: Records, room: Numbers, found: int) -> int:
    """Where the node of the lowest weight and, among equals, with the most free CPUs is (CR_LLN)."""
    best = 0
    for place in range(1, found):
        one, other = nodes[room[place]], nodes[room[best]]
        if one["weight"] < other["weight"] or (
            one["weight"] == other["weight"] and one["free_cpus"] > other["free_cpus"]
        ):
            best = place
    return best
