"""What users ask rlallocd, and what it answers, over ``users.sock``: one question and one answer a connection.

The question is read until the asker has shut its side; so is the answer. msgpack with typed schemas; the daemon knows
the asker from the kernel (SO_PEERCRED), not from the message.
"""

import contextlib
import socket
from pathlib import Path
from typing import Annotated, Final

import msgspec

from rlalloc.errors import RlallocError
from rlalloc.store.decided_jobs import DecidedJob
from rlalloc.store.job_story import Chapter

SOCKET_FILE: Final = "users.sock"
MOST_QUESTION_BYTES: Final = 4096
_ANSWER_WITHIN_S: Final = 20.0
_PART_BYTES: Final = 1 << 16
MOST_JOBS_ASKED: Final = 500
"""Job ids in one question: they fit into MOST_QUESTION_BYTES."""
_JobId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class UserServiceError(RlallocError):
    """rlallocd does not answer here, or refuses the question; the text says what to do."""


class DaemonAway(UserServiceError):
    """Nothing answers: rlallocd is dead, still connecting, or on another machine."""


class AskStory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="story"):
    """What was decided for a job."""

    job_id: _JobId


class AskDecided(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="decided"):
    """What was asked, decided and applied for jobs."""

    job_ids: Annotated[tuple[_JobId, ...], msgspec.Meta(max_length=MOST_JOBS_ASKED)]


class AskSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="settings"):
    """How scripts are read, and within which bounds jobs may change."""


class AskOff(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="off"):
    """Leave a pending job alone from now on, and give it its request back."""

    job_id: _JobId
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


class AskSwitch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="switch"):
    """Switch rlalloc off or on for the whole site; ``for_user`` is for whom root asks (sudo)."""

    off: bool
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""
    for_user: Annotated[str, msgspec.Meta(max_length=64)] = ""


class AskState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="state"):
    """How rlallocd is; for those who may see all jobs."""


class Story(msgspec.Struct, frozen=True, tag="story"):
    """The decisions on the asker's own job, oldest first."""

    chapters: tuple[Chapter, ...]


class Decided(msgspec.Struct, frozen=True, tag="decided"):
    """Those of the jobs that are the asker's own and were decided."""

    jobs: tuple[DecidedJob, ...]


class Settings(msgspec.Struct, frozen=True, tag="settings"):
    """The configuration as YAML, without what is secret."""

    text: str


class State(msgspec.Struct, frozen=True, tag="state"):
    """What rlallocd last wrote of itself: the text of its state file."""

    text: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What was done, in words."""

    message: str


class Denied(msgspec.Struct, frozen=True, tag="denied"):
    """Why there is no answer."""

    message: str


Question = AskStory | AskDecided | AskSettings | AskOff | AskSwitch | AskState
Answer = Story | Decided | Settings | State | Done | Denied

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encode_answer(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    return _encoder.encode(answer)


def decode_question(data: bytes) -> Question:
    """Return the question in ``data``. Raises UserServiceError."""
    try:
        return _questions.decode(data)
    except (msgspec.DecodeError, RecursionError) as err:
        raise UserServiceError(f"not a question of this version of rlalloc: {err}") from err


def ask_daemon(runtime_directory: Path, question: Question) -> Story | Decided | Settings | State | Done:
    """Ask the daemon on this machine, as the user of this process. Raises UserServiceError."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_WITHIN_S)
            connection.connect(str(runtime_directory / SOCKET_FILE))
            with contextlib.suppress(ConnectionError):
                connection.sendall(_encoder.encode(question))
                connection.shutdown(socket.SHUT_WR)
            data = _received(connection)
    except OSError as err:
        raise DaemonAway(
            f"rlallocd does not answer at {runtime_directory / SOCKET_FILE} ({err}): run this on the machine of "
            "slurmctld, or ask an administrator"
        ) from err
    try:
        answer = _answers.decode(data)
    except (msgspec.DecodeError, RecursionError) as err:
        raise UserServiceError(f"rlallocd is of another version than this command: {err}") from err
    if isinstance(answer, Denied):
        raise UserServiceError(answer.message)
    return answer


def _received(connection: socket.socket) -> bytes:
    """All that the daemon says; it may hang up before it has read the question. Raises OSError if it says nothing."""
    data = b""
    try:
        while part := connection.recv(_PART_BYTES):
            data += part
    except ConnectionResetError:
        if not data:
            raise
    if not data:
        raise ConnectionResetError("it hung up without an answer")
    return data
