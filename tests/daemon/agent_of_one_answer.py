"""An agent that gives the same shares to all jobs: for tests of what is decided whichever way a policy answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import zmq

from rlalloc.job import Shares
from rlalloc.messages import Decide, Decided, PolicyAnswer, decode_request, encode_message

_LOOK_AGAIN_MS: Final = 100


@contextmanager
def agent_that_answers(shares: Shares, socket_file: Path) -> Iterator[str]:
    """Answer from a thread of this process until the block ends; gives the endpoint to ask."""
    endpoint = f"ipc://{socket_file}"
    ended = threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.bind(endpoint)

        def answer() -> None:
            while not ended.is_set():
                if not router.poll(_LOOK_AGAIN_MS):
                    continue
                identity, data = router.recv_multipart()
                request = decode_request(data)
                assert isinstance(request, Decide)
                answers = (PolicyAnswer(shares, 0.0),) * request.jobs
                reply = Decided(request_id=request.request_id, policy_version="v000001", answers=answers)
                router.send_multipart([identity, encode_message(reply)])

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield endpoint
        finally:
            ended.set()
            thread.join()
