"""Answers for users about their own jobs, and nobody else's: a socket that everybody on this machine may connect to.

The kernel says who asks (SO_PEERCRED). The service only reads, in threads of its own and through its own connections
to the store; ``rlalloc off`` it hands to the loop. Each connection has a thread and a time limit, and each user few
connections and one reading of the store at a time: nobody keeps others waiting, nor a decision.
"""

import contextlib
import grp
import logging
import math
import os
import pwd
import socket
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.config import Config, HistorySection, StoreSection, config_as_yaml
from rlalloc.errors import StoreError
from rlalloc.site_switch import SwitchError
from rlalloc.store import Store
from rlalloc.store.job_story import story_of
from rlalloc.system.shared_files import read_regular_file
from rlalloc.user_messages import (
    MOST_QUESTION_BYTES,
    SOCKET_FILE,
    Answer,
    AskDecided,
    AskOff,
    AskSettings,
    AskState,
    AskStory,
    AskSwitch,
    Decided,
    Denied,
    Done,
    Question,
    Settings,
    State,
    Story,
    UserServiceError,
    decode_question,
    encode_answer,
)
from rlallocd.process.daemon_state import STATE_FILE
from rlallocd.process.switched_off import SiteSwitchInUse, printable
from rlallocd.submissions.intercept import WAKE_FILE
from rlallocd.transactions.left_alone import OffRequest, OffRequests
from rlallocd.users.user_connections import MOST_OF_ALL, UserConnections
from rlallocd.users.user_pace import UserPace

_log = logging.getLogger(__name__)

GROUPS: Final = ("rlalloc", "rlalloc-readers")
"""Their members may read everybody's jobs. The first may read the store, too; the second may only ask here."""
_ASK_WITHIN_S: Final = 2.0
_READ_WITHIN_S: Final = 5.0
"""So long may an asker take to read its answer, which is longer than a question."""
_OFF_WITHIN_S: Final = 8.0
"""So long may the loop take to come to a request."""
_PRICE_OF_OFF: Final = 1.0
_PRICE_OF_UNKNOWN: Final = 6.0
"""Of a job that the loop has not seen yet, or that is in no queue: whose it is shows the next cycle."""
_PRICE_OF_READING: Final = 0.25
"""Parts of a user's allowance (``rlallocd.users.user_pace``)."""
_ACCEPT_AGAIN_S: Final = 1.0
"""After a connection could not be accepted, for want of file descriptors, say."""


class Asker(msgspec.Struct, frozen=True):
    """Who asks: a login name, and whether it may see all jobs. Only root and the daemon may change all."""

    name: str
    sees_all: bool
    uid: int = -1

    @property
    def changes_all(self) -> bool:
        """Whether it may have jobs of others left alone."""
        return self.uid in (0, os.geteuid())

    @classmethod
    def of(cls, uid: int) -> "Asker":
        """The asker with this user id; one without a login name sees nothing, unless it is root or this daemon."""
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = ""
        return cls(name, uid in (0, os.geteuid()) or may_see_all(name), uid)

    def may_see(self, user: str) -> bool:
        """Whether this one may see a job of ``user``."""
        return self.sees_all or (self.name != "" and user == self.name)


class UserService:
    """Serves from construction until closed. ``config`` and ``stands_by`` may be replaced at any time.

    ``stands_by`` says why the rlallocd beside another slurmctld acts; only that one does what users ask for.
    Raises OSError, or RuntimeError if there is no thread for it.
    """

    def __init__(
        self, config: Config, off_requests: OffRequests | None = None, switch: SiteSwitchInUse | None = None
    ) -> None:
        self.config = config
        self.stands_by = ""
        self._told = config, Settings(config_as_yaml(_public(config)))
        self._off_requests = off_requests
        self._switch = switch
        self._path = config.runtime_directory / SOCKET_FILE
        self._socket = _listen(self._path)
        self._closing = threading.Event()
        self._connections = UserConnections()
        self._pace = UserPace()
        self._thread = threading.Thread(target=self._serve, name="user-service", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Stop serving, and remove the socket."""
        self._closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=2 * _ASK_WITHIN_S)
        self._connections.end(within_s=2 * _ASK_WITHIN_S)
        self._path.unlink(missing_ok=True)

    @property
    def is_there(self) -> bool:
        """Whether users can connect; not so where somebody has removed the socket."""
        return self._path.is_socket()

    def answer(self, question: Question, asker: Asker) -> Answer:
        """The answer to one question."""
        if isinstance(question, AskSettings):
            return self._tell_settings(asker)
        if self.stands_by and isinstance(question, (AskOff, AskSwitch)):
            return Denied(f"rlallocd on this machine stands by ({self.stands_by}): run this on the other one")
        if isinstance(question, AskOff):
            return self._leave_alone(question, asker)
        if isinstance(question, AskSwitch):
            return self._switch_site(question, asker)
        if isinstance(question, AskState):
            return self._state(asker)
        return self._read(question, asker)

    def _tell_settings(self, asker: Asker) -> Answer:
        if not asker.changes_all:
            self._take_from_allowance(asker, _PRICE_OF_READING)
        config = self.config
        if config is not self._told[0]:
            self._told = config, Settings(config_as_yaml(_public(config)))
        return self._told[1]

    def _state(self, asker: Asker) -> Answer:
        if not asker.sees_all:
            return Denied("only root and members of rlalloc and rlalloc-readers may see the state of rlallocd")
        try:
            return State(read_regular_file(self.config.runtime_directory / STATE_FILE).decode())
        except OSError as err:
            return Denied(f"rlallocd cannot read its state: {err.strerror or err}")

    def _leave_alone(self, question: AskOff, asker: Asker) -> Answer:
        if self._off_requests is None or not (asker.name or asker.changes_all):
            return Denied("rlallocd does not know whose jobs are yours: ask an administrator")
        who = asker.name, asker.uid, asker.changes_all
        request = OffRequest(question.job_id, *who, printable(question.reason))
        if not asker.changes_all:
            self._off_requests.require_own(request)
            known = self._off_requests.knows(request.job_id)
            self._take_from_allowance(asker, _PRICE_OF_OFF if known else _PRICE_OF_UNKNOWN)
        return Done(self._off_requests.ask(request, _OFF_WITHIN_S, self._wake))

    def _switch_site(self, question: AskSwitch, asker: Asker) -> Answer:
        if self._switch is None:
            return Denied("rlallocd is not ready yet: try again in a few seconds")
        try:
            return Done(self._switch.ask(question, asker.uid, asker.name, _OFF_WITHIN_S, self._wake))
        except SwitchError as err:
            return Denied(str(err))

    def _wake(self) -> None:
        """Let the loop cycle, as the plugin does."""
        with contextlib.suppress(OSError):
            os.utime(self.config.runtime_directory / WAKE_FILE, follow_symlinks=False)

    def _take_from_allowance(self, asker: Asker, price: float) -> None:
        """Raise UserServiceError where a user asks for more than is everybody's to ask for."""
        if wait_s := self._pace.wait_s(asker.uid, price):
            raise UserServiceError(f"you have asked for much at a time: try again in {math.ceil(wait_s)} seconds")

    def _read(self, question: AskStory | AskDecided, asker: Asker) -> Answer:
        if not asker.changes_all:
            self._take_from_allowance(asker, _PRICE_OF_READING)
        try:
            with contextlib.closing(Store(self.config.store.url, read_only=True, skip_unreadable=True)) as store:
                if isinstance(question, AskDecided):
                    jobs = store.sizes.of(question.job_ids)
                    return Decided(tuple(job for job in jobs if asker.may_see(job.user)))
                story = story_of(store, question.job_id)
                return Story(tuple(each for each in story if asker.may_see(each.decision.user)))
        except StoreError:
            _log.warning("cannot answer users: the store cannot be read")
            return Denied("rlallocd cannot read its store now: try again later")

    def _serve(self) -> None:
        """Accept, and leave the rest to a thread: nothing here waits for an asker."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as err:
                if self._closing.wait(_ACCEPT_AGAIN_S):
                    return
                _log.warning("cannot accept a user's question, trying again: %s", err)
                continue
            try:
                if not self._connections.serve(connection, self._converse):
                    _refuse(connection)
            except Exception:  # noqa: BLE001 (no thread, say: the next one may get an answer)
                connection.close()
                _log.exception("cannot answer a user")

    def _converse(self, connection: socket.socket, uid: int, turn: threading.Lock) -> None:
        with contextlib.suppress(OSError):  # an asker that goes away asks again
            answer = self._answer_to(connection, uid, turn)
            connection.settimeout(_READ_WITHIN_S)  # in all, however often sendall goes on
            connection.sendall(answer)

    def _answer_to(self, connection: socket.socket, uid: int, turn: threading.Lock) -> bytes:
        until_s = time.monotonic() + _ASK_WITHIN_S  # in all: an asker that trickles bytes would hold its thread
        connection.settimeout(_ASK_WITHIN_S)
        data = b""
        while len(data) <= MOST_QUESTION_BYTES and (part := connection.recv(MOST_QUESTION_BYTES)):
            data += part
            connection.settimeout(max(0.001, until_s - time.monotonic()))
        if len(data) > MOST_QUESTION_BYTES:
            return encode_answer(Denied("the question is too long"))
        try:
            question = decode_question(data)
            # The loop answers a request in its next cycle; readings take time of the loop's own interpreter.
            with contextlib.nullcontext() if isinstance(question, (AskOff, AskSwitch)) else turn:
                return encode_answer(self.answer(question, Asker.of(uid)))
        except UserServiceError as err:
            return encode_answer(Denied(str(err)))
        except Exception:  # noqa: BLE001 (whatever one user asks, the next one gets an answer)
            _log.exception("cannot answer a user")
            return encode_answer(Denied("rlallocd cannot answer this: ask an administrator to read its log"))


def _refuse(connection: socket.socket) -> None:
    """Say so at once and hang up, without a wait for the question or for the answer to be read."""
    with connection, contextlib.suppress(OSError):
        connection.settimeout(0)
        connection.send(
            encode_answer(Denied("too many questions at a time are open: try again when some have ended"))
        )


def _listen(path: Path) -> socket.socket:
    """Make the socket anew, for everybody. Raises OSError."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen(MOST_OF_ALL)
    except OSError:
        listening.close()
        raise
    return listening


def _public(config: Config) -> Config:
    """The configuration without what users have no use for: the store's URL may hold a password."""
    return msgspec.structs.replace(config, store=StoreSection(), history=HistorySection())


def may_see_all(name: str) -> bool:
    """Whether a user is in a group whose members may read everybody's jobs."""
    for group_name in GROUPS:
        with contextlib.suppress(KeyError):
            group = grp.getgrnam(group_name)
            if name in group.gr_mem or pwd.getpwnam(name).pw_gid == group.gr_gid:
                return True
    return False
