"""The agenda: a binary heap with one place for each job and node, so that a changed plan leaves no stale entry.

Entries at the same time come in the order of their numbers, jobs before nodes: the same seed gives the same bytes.
"""

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import NOBODY, World


@compiled
def plan(world: World, number: int, time_s: float) -> None:
    """Plan an event of job or node ``number`` at ``time_s``, instead of the one planned before."""
    world.agenda_s[number] = time_s
    place = world.agenda_place[number]
    if place == NOBODY:
        place = world.clock[0]["waiting"]
        world.clock[0]["waiting"] = place + 1
        _put(world, number, place)
    _sink(world, _rise(world, place))


@compiled
def cancel_plan(world: World, number: int) -> None:
    """Cancel the planned event of ``number``."""
    place = world.agenda_place[number]
    if place == NOBODY:
        return
    world.agenda_place[number] = NOBODY
    last = world.clock[0]["waiting"] - 1
    world.clock[0]["waiting"] = last
    if place != last:
        _put(world, world.agenda[last], place)
        _sink(world, _rise(world, place))


@compiled
def _put(world: World, number: int, place: int) -> None:
    world.agenda[place] = number
    world.agenda_place[number] = place


@compiled
def _before(world: World, number: int, other: int) -> bool:
    one_s, other_s = world.agenda_s[number], world.agenda_s[other]
    return bool(one_s < other_s or (one_s == other_s and number < other))


@compiled
def _rise(world: World, place: int) -> int:
    number = world.agenda[place]
    while place > 0:
        parent = (place - 1) // 2
        if not _before(world, number, world.agenda[parent]):
            break
        _put(world, world.agenda[parent], place)
        place = parent
    _put(world, number, place)
    return place


@compiled
def _sink(world: World, place: int) -> None:
    number = world.agenda[place]
    waiting = world.clock[0]["waiting"]
    while True:
        child = 2 * place + 1
        if child >= waiting:
            break
        if child + 1 < waiting and _before(world, world.agenda[child + 1], world.agenda[child]):
            child += 1
        if not _before(world, world.agenda[child], number):
            break
        _put(world, world.agenda[child], place)
        place = child
    _put(world, number, place)


@compiled
def plan_look(world: World) -> None:
    """Resources have been freed: where the site decides late, plan its look at the queue."""
    clock, rules = world.clock[0], world.rules[0]
    if rules["late"]:
        clock["next_look_s"] = min(clock["next_look_s"], clock["now_s"] + rules["late_after"])
