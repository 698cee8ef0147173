"""What the daemon and the agent say to each other: msgpack, one schema, strictly typed.

Frames on a DEALER socket: [bytes of a request]. On a ROUTER socket: [identity, bytes of a reply]. Every message
names its protocol version; every reply names the request that it answers.
"""

import math
from typing import Annotated, Final, TypeVar

import msgspec

from rlalloc.errors import MessageError
from rlalloc.job import Shares

PROTOCOL_VERSION: Final = 2
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
MAX_BATCH: Final = 10_000
Names = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=128)], ...], msgspec.Meta(max_length=256)]
"""What the columns of a request's numbers are, once a batch."""


class Decide(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="decide", kw_only=True):
    """Ask for the shares of a batch of jobs.

    ``features`` (jobs, feature_names) and ``alternatives`` (jobs, heuristics, SHARES), what each heuristic would
    answer, are float32, little endian, one job after the other. ``deadline_s`` is the wall-clock time (epoch) after
    which nobody waits for the answer. With ``sample`` the shares are drawn from the policy, else its mean is taken.
    """

    request_id: str
    jobs: int
    feature_names: Names
    features: bytes
    heuristics: Names
    alternatives: bytes
    deadline_s: float
    sample: bool
    protocol: int = PROTOCOL_VERSION


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ask", kw_only=True):
    """Ask the agent how it is: which policy it serves and what it has counted."""

    request_id: str
    protocol: int = PROTOCOL_VERSION


class PolicyAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Shares for one job and the natural logarithm of their probability density under the policy."""

    shares: Shares
    log_probability: float


class Decided(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="decided", kw_only=True):
    """The answers to a Decide, in its order."""

    request_id: str
    policy_version: str
    answers: tuple[PolicyAnswer, ...]
    protocol: int = PROTOCOL_VERSION


class AgentState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="state", kw_only=True):
    """The answer to an Ask.

    ``counters`` count since the agent started, by name. ``problem`` says why the version in use cannot be served, so
    that ``policy_version`` is served instead; empty where there is none. ``version`` is the agent's own.
    """

    request_id: str
    policy_version: str
    started_s: float
    counters: dict[str, int]
    problem: str = ""
    version: str = ""
    protocol: int = PROTOCOL_VERSION


class Refused(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="refused", kw_only=True):
    """A request that could not be answered; ``request_id`` is empty where it could not be read."""

    request_id: str
    code: str
    message: str
    protocol: int = PROTOCOL_VERSION


class _Envelope(msgspec.Struct):
    """What messages of all protocols have."""

    protocol: int = PROTOCOL_VERSION


Request = Decide | Ask
Reply = Decided | AgentState | Refused
Message = TypeVar("Message", Decide | Ask, Decided | AgentState | Refused)

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
_envelopes = msgspec.msgpack.Decoder(_Envelope)


def encode_message(message: Request | Reply) -> bytes:
    """Return the bytes of a message."""
    return _encoder.encode(message)


def decode_request(data: bytes) -> Request:
    """Return the request in ``data``. Raises MessageError if it is none of this protocol."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise MessageError(f"a request of {len(data)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
    return _checked(_decode(_requests, data))


def decode_reply(data: bytes) -> Reply:
    """Return the reply in ``data``. Raises MessageError if it is none of this protocol, or answers no numbers."""
    reply = _checked(_decode(_replies, data))
    if isinstance(reply, Decided) and not all(map(_is_sound, reply.answers)):
        raise MessageError("an answer has shares outside [0, 1], or numbers that are not finite")
    return reply


def _is_sound(answer: PolicyAnswer) -> bool:
    shares = msgspec.structs.astuple(answer.shares)
    return all(0.0 <= share <= 1.0 for share in shares) and math.isfinite(answer.log_probability)  # NaN is neither


def _decode(decoder: msgspec.msgpack.Decoder[Message], data: bytes) -> Message:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise MessageError(_why_not(data) or f"not a message of protocol {PROTOCOL_VERSION}: {err}") from err


def _checked(message: Message) -> Message:
    if message.protocol != PROTOCOL_VERSION:
        raise MessageError(_other_protocol(message.protocol))
    return message


def _why_not(data: bytes) -> str:
    """Return why a message cannot be read if that is another protocol, else nothing."""
    try:
        spoken = _envelopes.decode(data).protocol
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return _other_protocol(spoken) if spoken != PROTOCOL_VERSION else ""


def _other_protocol(spoken: int) -> str:
    return f"protocol {spoken} is not spoken here, only {PROTOCOL_VERSION}: upgrade daemon and agent together"
