"""Which decisions of its jobs the demo looks at."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec

from rlalloc.store import Store
from rlalloc_demo.demo_site import Place
from rlalloc_demo.demo_workload import Entry, Submitted
from rlalloc_demo.follow import first_decisions_of
from tests.core.test_store import DECISION


def test_how_soon_a_job_was_seen_is_its_first_decisions_time(tmp_path: Path) -> None:
    """A job that waits is decided again when it could start."""
    later = msgspec.structs.replace(DECISION, id="later", decided_s=DECISION.decided_s + 10.0)
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.add_decisions([later, DECISION])
    entry = Entry(at=0.0, user="llm-alice", kind="declared", sbatch="finetune.sbatch")
    place = cast(Place, SimpleNamespace(store=store))
    assert first_decisions_of(place, [Submitted(DECISION.job_id, entry, 0.0)]) == {DECISION.job_id: DECISION}
    store.close()
