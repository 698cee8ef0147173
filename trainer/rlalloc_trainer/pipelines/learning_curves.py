"""Learning curves of a training: as a picture, and as TensorBoard reads them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from rlalloc_trainer.pipelines.training_folder import SeedOutcome

VALIDATION: Final = "mean JCT over the baseline's, validation workloads"


def write_tensorboard(outcome: SeedOutcome, folder: Path) -> None:
    """Write a seed's run anew to what ``tensorboard --logdir FOLDER`` shows, in a folder of its own there."""
    from tensorboardX import SummaryWriter

    own = folder / f"seed-{outcome.seed}"
    shutil.rmtree(own, ignore_errors=True)
    with SummaryWriter(str(own)) as writer:
        last = 0
        for name, curve in outcome.curves.items():
            for step, value in zip(curve.steps, curve.values, strict=True):
                writer.add_scalar(f"sac/{name}", value, step)
                last = max(last, step)
        writer.add_scalar("validation/jct_ratio", outcome.ratio.estimate, last)


def draw_curves(outcomes: Sequence[SeedOutcome], path: Path) -> None:
    """Draw all seeds so far to a PNG: SAC's figures by gradient step, validation by seed."""
    from matplotlib.figure import Figure

    names = list(outcomes[0].curves)
    figure = Figure(figsize=(5 * (len(names) + 1) / 2, 6), layout="constrained")
    axes = figure.subplots(2, (len(names) + 2) // 2, squeeze=False).flatten()
    for place, name in zip(axes[1:], names, strict=False):
        for outcome in outcomes:
            curve = outcome.curves[name]
            place.plot(curve.steps, curve.values, label=f"seed {outcome.seed}")
        place.set(title=name, xlabel="gradient steps")
        place.grid(alpha=0.3)
    seeds = [outcome.seed for outcome in outcomes]
    ratios = [outcome.ratio for outcome in outcomes]
    axes[0].errorbar(
        seeds,
        [ratio.estimate for ratio in ratios],
        yerr=np.array([(ratio.estimate - ratio.low, ratio.high - ratio.estimate) for ratio in ratios]).T,
        fmt="o",
        capsize=4,
    )
    axes[0].axhline(1.0, color="black", linewidth=0.8)
    axes[0].set(title=VALIDATION, xlabel="seed", xticks=seeds)
    axes[0].title.set_fontsize("small")
    axes[0].grid(alpha=0.3)
    for place in axes[len(names) + 1 :]:
        place.set_visible(False)
    figure.savefig(path, dpi=120)
