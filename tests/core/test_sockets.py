"""Sockets, cores and threads that jobs ask for."""

import pytest

from rlalloc.sockets import Sockets


@pytest.mark.parametrize(
    ("asked", "meets"),
    [
        (Sockets(), True),
        (Sockets(2, 16, 2), True),
        (Sockets(sockets=4), False),
        (Sockets(cores=17), False),
        (Sockets(threads=3), False),
    ],
)
def test_a_node_has_at_least_what_a_job_asks_for(asked: Sockets, *, meets: bool) -> None:
    assert Sockets(2, 16, 2).meet(asked) == meets
    assert Sockets().meet(asked) == (asked == Sockets())  # nobody says what the node has


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Sockets(), ""),
        (Sockets(1, 1, 1), ""),
        (Sockets(sockets=4), "at least 4 sockets"),
        (Sockets(2, 16, 2), "at least 2 sockets, 16 cores a socket, 2 threads a core"),
    ],
)
def test_what_not_every_node_has_is_named(asked: Sockets, words: str) -> None:
    assert asked.describe() == words
