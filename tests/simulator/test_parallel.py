"""Work is spread over processes that give the same answers in order, and end with their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rlalloc_simulator.parallel import processes


def test_answers_come_in_order() -> None:
    with processes(1) as parallel_map:
        assert list(parallel_map(abs, [-3, 1, -2])) == [3, 1, 2]
    with processes(2) as parallel_map:
        assert list(parallel_map(abs, list(range(-20, 0)))) == list(range(20, 0, -1))


def test_workers_of_a_killed_trainer_end() -> None:
    program = (
        "import os, time\n"
        "from rlalloc_simulator.parallel import processes\n"
        "if __name__ == '__main__':\n"
        "    with processes(1 + 1) as parallel_map:\n"
        "        print(*set(parallel_map(eval, ['__import__(\"os\").getpid()'] * 20)), flush=True)\n"
        "        time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert workers
        assert all(Path(f"/proc/{worker}").exists() for worker in workers)
        parent.send_signal(signal.SIGKILL)
    for _ in range(6000):
        if not any(runs(worker) for worker in workers):
            return
        time.sleep(0.01)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    raise AssertionError(f"workers {workers} outlived their parent by a minute")


def test_a_worker_of_a_trainer_that_died_meanwhile_ends() -> None:
    # What starts it is gone before it can ask to be told of that: here the process between it and this test.
    program = (
        "import os, sys, time\n"
        "from multiprocessing import get_context\n"
        "from rlalloc_simulator.parallel import _prepare_worker\n"
        "def begin(end):\n"
        "    while os.getppid() == end:\n"
        "        time.sleep(0.01)\n"
        "    _prepare_worker()\n"
        "    print('outlived it', flush=True)\n"
        "if __name__ == '__main__':\n"
        "    get_context('fork').Process(target=begin, args=(os.getpid(),)).start()\n"
        "    os._exit(0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert "outlived it" not in ended.stdout
    assert "died before its worker had started" in ended.stderr


def runs(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
