"""Metrics over HTTP. Everybody on the machine may connect, so connections are few, short, and share what is made.

A connection has one question, and PAGE_WITHIN_S in all. Where there are MOST already, the oldest that has not asked
yet, or does not read its answer, is hung up on: whoever asks at once, as Prometheus does, gets an answer.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

_log = logging.getLogger(__name__)

MOST: Final = 16
"""Connections at a time: each holds a thread and a file descriptor."""
PAGE_WITHIN_S: Final = 10.0
_TIME_FOR_AN_ANSWER_S: Final = 3.0
_FRESH_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.5
_LAST_PORT: Final = 65_535
_PATHS: Final = ("/", "/metrics")


class MetricsServer(TCPServer):
    """Serves a registry from construction until closed, in a thread of its own.

    Raises OSError, OverflowError, or RuntimeError if there is no thread for it.
    """

    allow_reuse_address = True
    request_queue_size = 2 * MOST

    def __init__(self, address: str, port: int, registry: CollectorRegistry) -> None:
        self.address_family, place = _resolved(address, port)
        super().__init__(place, _Handler)
        self.page = _Page(lambda: generate_latest(registry))
        self._changing = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        self._asked: set[socket.socket] = set()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_LOOK_EVERY_S,), name="metrics-server", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:
            self.server_close()
            raise

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        with self._changing:
            left = tuple(self._open)
        for each in left:
            _hang_up(each)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; without a file descriptor for it, rest rather than try at once again. Raises OSError."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_LOOK_EVERY_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; make room for it first."""
        with self._changing:
            if len(self._open) >= MOST:
                oldest = self._oldest()
                if oldest is None:
                    self.shutdown_request(request)
                    return
                del self._open[oldest]
                _hang_up(oldest)  # its thread ends now
            self._open[request] = time.monotonic()
        thread = threading.Thread(target=self._answer, args=(request, client_address), name="metrics", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._forget(request)
            raise

    def service_actions(self) -> None:
        """Hang up on whoever takes too long, however it goes on."""
        now_s = time.monotonic()
        with self._changing:
            late = [each for each, since_s in self._open.items() if now_s - since_s > PAGE_WITHIN_S]
        for each in late:
            _hang_up(each)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (socketserver's signature)
        """One that went away, or was hung up on, is nobody's fault."""
        _log.debug("a connection to the metrics of %s ended early", client_address, exc_info=True)

    def asked(self, request: socket.socket) -> None:
        """Note that a connection has sent its question."""
        with self._changing:
            self._asked.add(request)

    def _oldest(self) -> socket.socket | None:
        """The connection that has to make room: one that has not asked yet, else one that has had its time."""
        enough_s = time.monotonic() - _TIME_FOR_AN_ANSWER_S
        silent = (each for each in self._open if each not in self._asked)
        return next(silent, None) or next((each for each, since_s in self._open.items() if since_s < enough_s), None)

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001 (whatever one asker does, the next one gets an answer)
            self.handle_error(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, request: socket.socket) -> None:
        with self._changing:
            self._open.pop(request, None)
            self._asked.discard(request)
        self.shutdown_request(request)


class _Page:
    """What is served, made anew at most every _FRESH_S, by one thread at a time."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made_s = float("-inf")
        self._text = b""

    def now(self) -> bytes:
        """The page of this moment."""
        with self._making:
            if time.monotonic() - self._made_s > _FRESH_S:
                self._text = self._make()
                self._made_s = time.monotonic()
            return self._text


class _Handler(BaseHTTPRequestHandler):
    """One GET, one answer."""

    timeout = PAGE_WITHIN_S
    server: MetricsServer

    def do_GET(self) -> None:
        """Answer with the page."""
        self.server.asked(self.request)
        if self.path.partition("?")[0] not in _PATHS:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        page = self.server.page.now()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server's signature)
        """Not in the daemon's log."""


def serve_metrics(listen: str, registry: CollectorRegistry) -> MetricsServer | None:
    """Serve a registry at ``address:port``; None, with a line in the log, where that cannot be had or is not wanted.

    Nobody's jobs depend on metrics: the daemon goes on without them.
    """
    if not listen:
        return None
    address, _, port = listen.rpartition(":")
    try:
        server = MetricsServer(address, int(port), registry)
    except (OSError, OverflowError, RuntimeError) as err:
        _log.error("no metrics: cannot listen at %s (%s); set metrics.listen to a free port", listen, err)
        return None
    _log.info("metrics at http://%s:%d/metrics", address, server.port)
    return server


def _resolved(address: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Family and address of a name. Raises OSError, OverflowError."""
    if port > _LAST_PORT:
        raise OverflowError(f"there is no port {port}")
    family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, place


def _hang_up(connection: socket.socket) -> None:
    """End a connection under the thread that reads or writes it, which then forgets it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        _log.debug("a connection had ended already")
