"""The ablation counts steps as it says it does, and a run is the same each time."""

import numpy as np
import pytest
import torch

import rlalloc_research.imitation_ablation as ablation
from rlalloc_trainer.imitation.cloning import CloningTerm, WarmStart

ARM = ablation.Arm(
    prioritised=True,
    experts=("price-ef",),
    workloads=2,
    warm_start=WarmStart(steps=10, batch=32),
    term=CloningTerm(fades_after=1100),
    pretraining=5,
    critics_first=60,
)


def run(returns: list[float], demonstrated: int = 0, arm: ablation.Arm = ARM) -> ablation.Run:
    return ablation.Run(arm, 0, demonstrated, [100 * index for index in range(len(returns))], returns)


def test_returns_are_smoothed_over_what_came_before() -> None:
    assert ablation.smoothed([1.0, 3.0, 5.0, 1.0]) == pytest.approx([1.0, 2.0, 3.0, 3.0])


def test_a_target_is_reached_by_the_smoothed_return() -> None:
    """One lucky evaluation is not enough."""
    assert ablation.steps_until(run([-1.0, -1.0, -0.4, -0.7, -0.7]), -0.75) == 300
    assert ablation.steps_until(run([-0.5, -1.0]), -0.75) == 0
    assert ablation.steps_until(run([-1.0, -1.0]), -0.75) == np.inf


def test_a_target_that_is_lost_again_was_not_kept() -> None:
    falls = run([-0.5, -0.5, -1.0, -1.0, -0.4, -0.4, -0.4])
    assert ablation.steps_until(falls, -0.75) == 0
    assert ablation.kept_from(falls, -0.75) == 500  # smoothed: -0.83 at 300, -0.80 at 400
    assert ablation.kept_from(run([-0.5, -1.0]), -0.6) == np.inf


def test_the_table_compares_with_plain_sac() -> None:
    """Plain SAC ends at -0.7, which it reaches after 400 steps on average; the other after 100, or never."""
    plain = [run([-1.0, -0.9, -0.7, -0.7, -0.7])] * 2
    other = [run([-1.0, -0.2, -0.2, -0.2, -0.2], 50), run([-1.0] * 5, 50)]
    lines = ablation.table({ablation.PLAIN: plain, "other": other}, {"expert": -0.5})
    assert "ends at -0.700 after 400 steps; experts: expert -0.500" in lines[0]
    assert lines[-2] == (
        f"| {ablation.PLAIN} | -1.000 | -0.700 ± 0.000 | -1.000 | 0 | 400 ± 0 | 0% | 400 ± 0 | 0% | 0 |"
    )
    assert lines[-1] == "| other | -1.000 | -0.600 ± 0.566 | -1.000 | 50 | 250 ± 212 | 25% | 250 ± 212 | 25% | 1 |"


def test_a_run_is_the_same_each_time_and_starts_at_the_clone() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one, other = (ablation.run_arm(ARM, seed=3, steps=1020, every=510) for _ in range(2))
    torch.set_num_threads(threads)
    assert one == other
    assert one.steps == [0, 510, 1020]
    assert one.demonstrated > 0
    assert one.returns[0] == one.returns[1]  # 55 batches of the critics' alone take 540 steps
    assert one.returns[1] != one.returns[2]
