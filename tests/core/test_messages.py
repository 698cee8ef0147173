"""Bytes on the wire: ours, or a MessageError, and nothing else."""

import contextlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.errors import MessageError
from rlalloc.job import Shares
from rlalloc.messages import (
    Ask,
    Decide,
    Decided,
    PolicyAnswer,
    Refused,
    decode_reply,
    decode_request,
    encode_message,
)

DECIDE = Decide(
    request_id="r",
    jobs=1,
    feature_names=("waited",),
    features=b"1234",
    heuristics=("price-ef",),
    alternatives=b"1234" * 4,
    deadline_s=1.5,
    sample=True,
)
DECIDED = Decided(request_id="r", policy_version="v000001", answers=(PolicyAnswer(Shares(0.1, 0.2, 0.3), -1.0),))


def test_messages_survive_the_wire() -> None:
    assert decode_request(encode_message(DECIDE)) == DECIDE
    assert decode_request(encode_message(Ask(request_id="x"))) == Ask(request_id="x")
    assert decode_reply(encode_message(DECIDED)) == DECIDED
    refused = Refused(request_id="", code="protocol", message="no")
    assert decode_reply(encode_message(refused)) == refused


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_a_message_error(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        decode_request(data)


@given(st.integers(0, len(encode_message(DECIDE)) - 1))
def test_a_truncated_request_is_refused(length: int) -> None:
    with pytest.raises(MessageError):
        decode_request(encode_message(DECIDE)[:length])


def test_another_protocol_is_refused_by_number() -> None:
    with pytest.raises(MessageError, match="protocol 3 is not spoken here"):
        decode_request(encode_message(msgspec.structs.replace(DECIDE, protocol=3)))


def test_a_request_of_rlalloc_0_1_is_refused_by_its_number() -> None:
    earlier = {"type": "decide", "request_id": "r", "observation_schema": 7, "observations": b"", "protocol": 1}
    with pytest.raises(
        MessageError, match="protocol 1 is not spoken here, only 2: upgrade daemon and agent together"
    ):
        decode_request(msgspec.msgpack.encode(earlier))


@pytest.mark.parametrize("names", [("x" * 129,), tuple(f"f{number}" for number in range(257))])
def test_names_are_limited(names: tuple[str, ...]) -> None:
    with pytest.raises(MessageError):
        decode_request(encode_message(msgspec.structs.replace(DECIDE, feature_names=names)))


@pytest.mark.parametrize(
    "answer",
    [
        PolicyAnswer(Shares(math.nan, 0.2, 0.3), -1.0),
        PolicyAnswer(Shares(0.1, math.inf, 0.3), -1.0),
        PolicyAnswer(Shares(0.1, 0.2, 1.5), -1.0),
        PolicyAnswer(Shares(0.1, 0.2, 0.3, -0.1), -1.0),
        PolicyAnswer(Shares(0.1, 0.2, 0.3), math.nan),
        PolicyAnswer(Shares(0.1, 0.2, 0.3), math.inf),
    ],
)
def test_a_reply_with_numbers_that_mean_nothing_is_refused(answer: PolicyAnswer) -> None:
    with pytest.raises(MessageError, match="shares outside"):
        decode_reply(encode_message(msgspec.structs.replace(DECIDED, answers=(*DECIDED.answers, answer))))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(MessageError):
        decode_request(b"\x91" * 100_000)
