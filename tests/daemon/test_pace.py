"""When slurmctld is asked, and when it is left alone: the budget, backing off, and the schedule of cycles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.config import Config, DaemonSection, SlurmSection
from rlallocd.cycle_schedule import AFTER_A_WAKE_S, CycleReport, CycleSchedule
from rlallocd.slurm import BackOff, Budget

FIRST_LOOK_S = AFTER_A_WAKE_S[0]


def report(
    *,
    began_s: float = 0,
    decided: int = 0,
    reading_s: float = 0.01,
    processor_s: float = 0.02,
    failed: bool = False,
    jobs_of_ours: bool = True,
) -> CycleReport:
    return CycleReport(
        began_s=began_s,
        decided=decided,
        calls=1,
        reading_s=reading_s,
        processor_s=processor_s,
        failed=failed,
        jobs_of_ours=jobs_of_ours,
    )


class TestBudget:
    @given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 5)), max_size=200), st.integers(10, 600))
    def test_whoever_waits_for_it_stays_within_it(self, steps: list[tuple[float, int]], per_minute: int) -> None:
        """In any minute at most what one minute allows, what was saved up, and the calls of one cycle."""
        now_s = 0.0
        budget = Budget(per_minute, now_s)
        spent: list[tuple[float, int]] = []
        for pause_s, calls in steps:
            now_s = max(now_s + pause_s, budget.free_at_s())
            budget.spend(calls, now_s)
            spent.append((now_s, calls))
        for end_s, _ in spent:
            within = sum(calls for at_s, calls in spent if end_s - 60 < at_s <= end_s)
            assert within <= 2 * per_minute + 5

    def test_a_minutes_worth_may_be_spent_at_once_and_no_more(self) -> None:
        budget = Budget(60, now_s=0)
        for _ in range(60):
            assert budget.free_at_s() <= 0
            budget.spend(1, now_s=0)
        assert budget.free_at_s() == pytest.approx(1.0)

    def test_what_is_not_spent_is_not_saved_for_ever(self) -> None:
        budget = Budget(60, now_s=0)
        budget.spend(60, now_s=10_000)
        assert budget.free_at_s() == pytest.approx(10_001)


class TestBackOff:
    def test_doubled_up_to_the_longest(self) -> None:
        back_off = BackOff(10, uniform=lambda _least, most: most)
        assert [back_off.failed() for _ in range(6)] == [1, 2, 4, 8, 10, 10]

    def test_the_first_wait_may_be_longer(self) -> None:
        back_off = BackOff(600, uniform=lambda _least, most: most, first_s=60)
        assert [back_off.failed() for _ in range(5)] == [60, 120, 240, 480, 600]

    def test_an_answer_ends_it(self) -> None:
        back_off = BackOff(10, uniform=lambda _least, most: most)
        back_off.failed()
        back_off.failed()
        back_off.succeeded()
        assert back_off.failed() == 1

    def test_never_all_at_the_same_moment(self) -> None:
        assert len({BackOff(10).failed() for _ in range(20)}) > 1


class TestTimetable:
    CONFIG = Config(daemon=DaemonSection(poll_s=5, heartbeat_s=10))

    def test_the_first_cycle_comes_at_once(self) -> None:
        assert CycleSchedule(self.CONFIG, 100).wait_s(100) == 0

    @pytest.mark.parametrize(("jobs_of_ours", "wait_s"), [(True, 5), (False, 10)])
    def test_without_a_call_only_the_poll_or_the_heartbeat(self, *, jobs_of_ours: bool, wait_s: float) -> None:
        """With no job of ours in the queue nothing can change for us but by a call of the plugin."""
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.cycled(report(jobs_of_ours=jobs_of_ours), self.CONFIG, 0)
        assert schedule.wait_s(0) == wait_s

    @pytest.mark.parametrize(("processor_s", "wait_s"), [(0.25, 5), (0.4, 8), (3, 10)])
    def test_cycles_that_cost_much_come_less_often(self, processor_s: float, wait_s: float) -> None:
        """They take at most 5% of a core, unless the heartbeat needs more. A call comes as soon as before."""
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.cycled(report(processor_s=processor_s), self.CONFIG, 0)
        assert schedule.wait_s(0) == pytest.approx(wait_s)
        schedule.woken(2)
        assert schedule.wait_s(2) == pytest.approx(FIRST_LOOK_S)

    def test_what_decisions_cost_puts_no_cycle_off(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.cycled(report(processor_s=3, decided=1000), self.CONFIG, 0)
        assert schedule.wait_s(0) == 5

    def test_a_call_brings_the_next_cycle_forward(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.cycled(report(), self.CONFIG, 0)
        schedule.woken(2)
        assert schedule.wait_s(2) == pytest.approx(FIRST_LOOK_S)

    def test_a_burst_of_calls_does_not_put_it_off(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.cycled(report(), self.CONFIG, 0)
        for number in range(100):
            schedule.woken(2 + number / 1000)
        assert schedule.wait_s(2.1) == 0

    def test_it_looks_again_until_the_job_is_seen(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.woken(0)
        now_s, waits = 0.0, []
        for _ in AFTER_A_WAKE_S:
            wait_s = schedule.wait_s(now_s)
            waits.append(wait_s)
            now_s += wait_s
            schedule.cycled(report(began_s=now_s), self.CONFIG, now_s)
        # The first cycle was due anyway.
        assert waits == pytest.approx([0, *AFTER_A_WAKE_S[1:]])
        assert schedule.wait_s(now_s) == 5

    def test_once_it_is_decided_it_looks_no_more(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.woken(0)
        schedule.cycled(report(began_s=FIRST_LOOK_S, decided=1), self.CONFIG, 0.2)
        assert schedule.wait_s(0.2) == 5

    def test_a_job_whose_call_came_just_before_the_snapshot_is_looked_for_again(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.woken(0)
        schedule.woken(0.09)
        schedule.cycled(report(began_s=FIRST_LOOK_S, decided=1), self.CONFIG, 0.2)
        assert schedule.wait_s(0.2) < 1

    def test_a_slow_slurmctld_is_asked_more_seldom(self) -> None:
        """Readings take at most half of the time, however often the plugin calls."""
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.cycled(report(reading_s=4), self.CONFIG, 4)
        schedule.woken(4)
        assert schedule.wait_s(4) == pytest.approx(4)

    def test_a_cycle_that_went_on_with_updates_needs_no_rest(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        schedule.cycled(report(reading_s=1), self.CONFIG, 9)
        schedule.woken(9)
        assert schedule.wait_s(9) == pytest.approx(FIRST_LOOK_S)

    def test_a_slurmctld_that_does_not_answer_is_left_alone_for_longer_and_longer(self) -> None:
        schedule = CycleSchedule(self.CONFIG, 0)
        waits = []
        for _ in range(8):
            schedule.cycled(report(failed=True, reading_s=0), self.CONFIG, 0)
            schedule.woken(0)
            waits.append(schedule.wait_s(0))
        assert waits[0] <= 1
        assert waits[5] > 4 * waits[0]
        assert max(waits) <= self.CONFIG.grace_s / 4

    def test_calls_of_the_plugin_do_not_break_the_budget(self) -> None:
        config = Config(slurm=SlurmSection(calls_per_minute=10))
        schedule = CycleSchedule(config, 0)
        now_s, cycles = 0.0, 0
        while now_s < 600:
            schedule.woken(now_s)
            now_s += schedule.wait_s(now_s)
            schedule.cycled(report(began_s=now_s, decided=1), config, now_s)
            cycles += 1
        assert 100 <= cycles <= 115
