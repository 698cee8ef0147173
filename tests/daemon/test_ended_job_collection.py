"""The daemon adds each job of the site as it ends, and catches up on what it missed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import Config, HistorySection
from rlalloc.past_job import PastJob
from rlalloc.store import Store
from rlallocd.outcomes.ended_job_collection import SETTLED_AFTER_S, EndedJobCollection
from rlallocd.process.interval import Interval
from rlallocd.slurm import EndedJobs, SlurmUnavailable
from tests.core.history.test_history_readers import PAST
from tests.core.test_store import APPLICATION, DECISION

DAY_S = 86400.0
HOUR_S = 3600.0
NOW_S = 1_800_000_000.0
CONFIG = Config()


class Site:
    """What has ended and is settled, and the spans of time that were asked for; ``fails`` makes sacct fail."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended: list[PastJob] = []
        self.spans: list[tuple[float, float]] = []
        self.fails = False
        self.store = store
        self.counters: Counter[str] = Counter()
        self.clock_s = 0.0
        monkeypatch.setattr(
            "rlallocd.outcomes.ended_job_collection.Interval", lambda: Interval(clock=lambda: self.clock_s)
        )
        self.collection = EndedJobCollection(store, self.counters)

    def ask(self, since_s: float, until_s: float) -> EndedJobs:
        self.spans.append((since_s, until_s))
        if self.fails:
            raise SlurmUnavailable("sacct gave no answer in 10 s")
        return EndedJobs(tuple(job for job in self.ended if since_s <= job.ended_s <= until_s), until_s, 0)

    def collect_after(self, seconds: float, config: Config = CONFIG) -> None:
        self.clock_s += seconds
        self.collection.collect(self.ask, config, NOW_S + SETTLED_AFTER_S + self.clock_s)

    @property
    def stored(self) -> list[str]:
        return [job.job_id for job in self.store.history.past_jobs()]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield Site(store, monkeypatch)
    store.close()


def job(job_id: int, ended_s: float) -> PastJob:
    return msgspec.structs.replace(PAST, job_id=str(job_id), ended_s=ended_s)


def test_what_has_ended_since_is_asked_for_and_added_once(site: Site) -> None:
    site.store.history.add([], {"rlallocd": NOW_S - 300})
    site.ended = [job(1, NOW_S - 60)]
    site.collect_after(0)
    site.collect_after(100)  # not yet
    assert site.spans == [(NOW_S - 900, NOW_S)]
    site.ended.append(job(2, NOW_S + 200))
    site.ended.append(job(3, NOW_S - 30))  # slurmdbd heard of it late
    site.collect_after(200)
    assert site.spans[1:] == [(NOW_S - 600, NOW_S + 300)]
    assert site.stored == ["1", "3", "2"]
    assert site.counters["past_jobs"] == 3


def test_it_begins_a_day_ago_and_catches_up_after_a_downtime(site: Site) -> None:
    site.ended = [job(1, NOW_S - DAY_S + 5), job(2, NOW_S - 5), job(3, NOW_S + DAY_S), job(4, NOW_S + 3 * DAY_S - 1)]
    for seconds in (0.0, *[30.0] * 9):
        site.collect_after(seconds)
    assert site.stored == ["1", "2"]
    assert site.spans[0] == (NOW_S - DAY_S, NOW_S - DAY_S + HOUR_S + 600)
    calls = len(site.spans)
    assert calls == 5
    for seconds in (3 * DAY_S, *[30.0] * 9):
        site.collect_after(seconds)
    assert site.stored == ["1", "2", "3", "4"]
    assert all(until_s - since_s <= DAY_S + 600 for since_s, until_s in site.spans)
    assert len(site.spans) <= calls + 5


def test_a_failure_is_counted_and_tried_again_later_and_for_less(site: Site) -> None:
    site.fails = True
    for seconds in (0, 599, 1, 1199, 1):
        site.collect_after(seconds)
    assert [since_s for since_s, _ in site.spans] == [NOW_S - DAY_S, NOW_S + 600 - DAY_S, NOW_S + 1800 - DAY_S]
    assert [until_s - since_s for since_s, until_s in site.spans] == [HOUR_S + 600, HOUR_S / 4 + 600, 600 + 600]
    assert (site.counters["history_errors"], site.stored) == (3, [])
    site.fails = False
    site.ended = [job(1, NOW_S)]
    site.collect_after(3600)
    for _ in range(10):
        site.collect_after(30)
    assert site.stored == ["1"]


def test_names_are_stored_as_the_site_wants_them(site: Site, tmp_path: Path) -> None:
    config = Config(history=HistorySection(pseudonymize=True, key_file=tmp_path / "missing" / "key"))
    site.ended = [job(1, NOW_S - 60)]
    site.store.history.add([], {"rlallocd": NOW_S - 300})
    site.collect_after(0, config)
    assert (site.stored, site.counters["history_errors"]) == ([], 1)  # no key: no name is stored
    (tmp_path / "missing").mkdir()
    site.collect_after(4000, config)
    for _ in range(10):
        site.collect_after(30, config)
    (stored,) = site.store.history.past_jobs()
    assert stored.user.startswith("user-")
    assert stored.name.startswith("job-")


def test_a_job_that_rlalloc_changed_has_the_time_limit_that_its_user_asked_for(site: Site) -> None:
    site.store.add_decisions([DECISION])
    ours = msgspec.structs.replace(
        job(DECISION.job_id, NOW_S - 60), submitted_s=DECISION.submitted_s, limit_s=4 * 3600.0
    )
    other = msgspec.structs.replace(ours, user="bob", submitted_s=DECISION.submitted_s + 5, ended_s=NOW_S - 50)
    site.ended = [ours, other]
    site.store.history.add([], {"rlallocd": NOW_S - 300})
    site.collect_after(0)
    assert [found.limit_s for found in site.store.history.past_jobs()] == [
        DECISION.request.time_limit_s,
        4 * 3600.0,
    ]


@pytest.mark.parametrize("requeued_after_s", [0, 500])
def test_a_job_that_rlalloc_resized_enters_as_it_was_asked_for(site: Site, requeued_after_s: int) -> None:
    """And beside that as it ran, so that its speed and its use are taken for what they are."""
    request = DECISION.request
    intended = msgspec.structs.replace(request, gpus_per_node=1, mem_mib_per_node=1024)
    site.store.add_decisions([DECISION])
    site.store.journal([msgspec.structs.replace(APPLICATION, state="begun", intended=intended)])
    ran = msgspec.structs.replace(
        job(DECISION.job_id, NOW_S - 60),
        user=DECISION.user,
        submitted_s=DECISION.submitted_s + requeued_after_s,
        nodes=1,
        gpus=1,
        cpus=2,
        mem_mib=1024.0,
        limit_s=4 * 3600.0,
    )
    site.ended = [ran]
    site.store.history.add([], {"rlallocd": NOW_S - 300})
    site.collect_after(0)
    (stored,) = site.store.history.past_jobs()
    assert (stored.nodes, stored.gpus, stored.cpus) == (request.nodes, request.gpus, request.cpus)
    assert (stored.mem_mib, stored.limit_s) == (request.mem_mib, request.time_limit_s)
    assert stored.allotted is not None
    assert (stored.allotted.gpus, stored.allotted.cpus, stored.allotted.mem_mib) == (1, 2, 1024.0)
    assert stored.allotted.limit_s == 4 * 3600.0
    assert stored.allotted.slowdown > 1.0
    assert stored.run_s_as_requested == pytest.approx(stored.run_s / stored.allotted.slowdown)
