"""Looks at the queue and at the nodes about once a second, beside whatever else goes on."""

import re
import threading
import time
from typing import Final

from rlalloc_twins.twin_record import Look, NodeSeen, Waited
from slurm_testbed import Site

EVERY_S: Final = 1.0
_NODE: Final = re.compile(r"(\w+)=(\S*)")


class QueueSampler(threading.Thread):
    """Looks until ``stop``; ``looks`` are what it saw. A look that fails is left out."""

    def __init__(self, site: Site) -> None:
        super().__init__(daemon=True)
        self.looks: list[Look] = []
        self._site = site
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look again and again."""
        while not self._stopped.wait(EVERY_S):
            at_s = time.time()
            queue = self._site.try_run(["squeue", "--noheader", "--states=PENDING", "--format=%i|%r|%Q"])
            nodes = self._site.try_run(["scontrol", "show", "node", "--oneliner"])
            if queue.status == 0 and nodes.status == 0:
                self.looks.append(Look(at_s, _waited(queue.output), _nodes(nodes.output)))

    def stop(self) -> None:
        """End it, and wait for that."""
        self._stopped.set()
        self.join()


def _waited(text: str) -> tuple[Waited, ...]:
    rows = (line.split("|") for line in text.splitlines())
    return tuple(Waited(int(re.split(r"[_+]", name)[0]), reason, int(priority)) for name, reason, priority in rows)


def _nodes(text: str) -> tuple[NodeSeen, ...]:
    found = []
    for line in text.splitlines():
        words = dict(_NODE.findall(line))
        gpus = [int(re.search(r"gres/gpu=(\d+)", tres)[1]) if "gres/gpu=" in tres else 0  # type: ignore[index]
                for tres in (words.get("CfgTRES", ""), words.get("AllocTRES", ""))]  # fmt: skip
        found.append(
            NodeSeen(
                name=words["NodeName"],
                state=words["State"],
                gpus=gpus[0] - gpus[1],
                cpus=int(words["CPUTot"]) - int(words["CPUAlloc"]),
                mem_mib=int(words["RealMemory"]) - int(words["AllocMem"]),
            )
        )
    return tuple(found)
