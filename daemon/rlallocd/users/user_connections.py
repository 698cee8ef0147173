"""Connections of users to the daemon: each has a thread, and nobody has so many that others find no place."""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Final

MOST_OF_A_USER: Final = 8
MOST_OF_ALL: Final = 64
"""Connections at a time: each holds a thread and some file descriptors. Root always finds a place."""
_PART_OF_THE_REST: Final = 8
"""The fuller it is, the fewer places one user gets: this part of those that are left, and always one."""

Converse = Callable[[socket.socket, int, threading.Lock], None]
"""Serves a connection of a user id; the lock is for what this user may do once at a time."""


class UserConnections:
    """Those that are served now."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._open: dict[socket.socket, tuple[int, threading.Thread]] = {}
        self._locks: dict[int, threading.Lock] = {}

    def serve(self, connection: socket.socket, converse: Converse) -> bool:
        """Start to serve a connection, which is closed afterwards; False where its user, or all, have too many.

        Raises OSError, or RuntimeError if there is no thread for it.
        """
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        with self._changing:
            of_user = sum(each == uid for each, _ in self._open.values())
            if of_user >= self._most_of(uid):
                return False
            lock = self._locks.setdefault(uid, threading.Lock())

            def run() -> None:
                try:
                    with connection:
                        converse(connection, uid, lock)
                finally:
                    self._ended(connection, uid)

            thread = threading.Thread(target=run, name=f"user-{uid}", daemon=True)
            self._open[connection] = uid, thread
            try:
                thread.start()
            except RuntimeError:
                del self._open[connection]
                raise
        return True

    def end(self, within_s: float) -> None:
        """Hang up on everybody, and wait for the threads, but not for long: the daemon ends."""
        with self._changing:
            served = dict(self._open)
        for connection in served:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        until_s = time.monotonic() + within_s
        for _, thread in served.values():
            thread.join(timeout=max(0.0, until_s - time.monotonic()))

    def _most_of(self, uid: int) -> int:
        """How many connections a user may have now."""
        if uid in (0, os.geteuid()):
            return MOST_OF_A_USER
        left = MOST_OF_ALL - len(self._open)
        return 0 if left <= 0 else min(MOST_OF_A_USER, max(1, left // _PART_OF_THE_REST))

    def _ended(self, connection: socket.socket, uid: int) -> None:
        with self._changing:
            del self._open[connection]
            if all(each != uid for each, _ in self._open.values()):
                self._locks.pop(uid, None)
