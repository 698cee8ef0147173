"""Learning curves of a training: as a picture, and as TensorBoard reads them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rlalloc_trainer.training_folder import RoundOutcome

VALIDATION: Final = "mean JCT over the base's, validation streams"


def write_tensorboard(outcome: RoundOutcome, steps: int, folder: Path) -> None:
    """Append a round to what ``tensorboard --logdir FOLDER`` shows; ``steps`` are those of the training so far."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for name, curve in outcome.curves.items():
            for step, value in zip(curve.steps, curve.values, strict=True):
                writer.add_scalar(f"sac/{name}", value, step)
        writer.add_scalar("validation/jct_ratio", outcome.validation.estimate, steps)
        writer.add_scalar("labels", outcome.labels, steps)


def draw_curves(outcomes: Sequence[RoundOutcome], path: Path) -> None:
    """Draw all rounds so far to a PNG: SAC's figures by gradient step, validation by round."""
    from matplotlib.figure import Figure

    names = list(outcomes[0].curves)
    figure = Figure(figsize=(5 * (len(names) + 1) / 2, 6), layout="constrained")
    axes = figure.subplots(2, (len(names) + 2) // 2, squeeze=False).flatten()
    for place, name in zip(axes[1:], names, strict=False):
        for outcome in outcomes:
            curve = outcome.curves[name]
            place.plot(curve.steps, curve.values, label=f"round {outcome.number}")
        place.set(title=name, xlabel="gradient steps")
        place.grid(alpha=0.3)
    rounds = [outcome.number for outcome in outcomes]
    middle = [outcome.validation.estimate for outcome in outcomes]
    below = [outcome.validation.estimate - outcome.validation.low for outcome in outcomes]
    above = [outcome.validation.high - outcome.validation.estimate for outcome in outcomes]
    axes[0].errorbar(rounds, middle, yerr=(below, above), fmt="o-", capsize=4)
    axes[0].axhline(1.0, color="black", linewidth=0.8)
    axes[0].set(title=VALIDATION, xlabel="round", xticks=rounds)
    axes[0].title.set_fontsize("small")
    axes[0].grid(alpha=0.3)
    for place in axes[len(names) + 1 :]:
        place.set_visible(False)
    figure.savefig(path, dpi=120)
