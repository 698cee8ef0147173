"""An agent that answers as a test says: for what is done whichever way a policy answers, and with broken answers."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import zmq

from rlalloc.job import Shares
from rlalloc.messages import AgentState, Decide, Decided, PolicyAnswer, decode_request, encode_message

_LOOK_AGAIN_MS: Final = 100
VERSION: Final = "v000001"
Frames = Sequence[bytes]
"""One message."""


@contextmanager
def agent_that_answers(shares: Shares, socket_file: Path) -> Iterator[str]:
    """Give the same shares to all jobs; gives the endpoint to ask."""
    with agent_that_replies(lambda request: [[answered(request, shares)]], socket_file) as endpoint:
        yield endpoint


@contextmanager
def agent_that_replies(replies: Callable[[Decide], Sequence[Frames]], socket_file: Path) -> Iterator[str]:
    """Send the messages that ``replies`` returns for each batch, from a thread that lives as long as the block."""
    endpoint = f"ipc://{socket_file}"
    ended = threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.bind(endpoint)

        def serve() -> None:
            while not ended.is_set():
                if not router.poll(_LOOK_AGAIN_MS):
                    continue
                identity, data = router.recv_multipart()
                request = decode_request(data)
                if isinstance(request, Decide):
                    messages = replies(request)
                else:
                    state = AgentState(
                        request_id=request.request_id, policy_version=VERSION, started_s=time.time(), counters={}
                    )
                    messages = [[encode_message(state)]]
                for frames in messages:
                    router.send_multipart([identity, *frames])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield endpoint
        finally:
            ended.set()
            thread.join()


def answered(request: Decide, shares: Shares, *others: PolicyAnswer) -> bytes:
    """The bytes of a reply with these shares for each job of a batch, but ``others`` for its last ones."""
    answers = (PolicyAnswer(shares, 0.0),) * (request.jobs - len(others)) + others
    return encode_message(Decided(request_id=request.request_id, policy_version=VERSION, answers=answers))
