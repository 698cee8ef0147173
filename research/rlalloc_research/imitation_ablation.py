"""What prioritised replay and imitation are worth: environment steps until the return that plain SAC ends at.

On rlalloc/Cluster-v0 with short workloads and an actor without a heuristic (a residual one would start as the
expert). Each arm adds to the one before: prioritised replay; a warm start by cloning demonstrations; demonstrations
in the replay, critics that learn from them before the actor moves, and a cloning term behind a Q-filter. One more arm
has all of it with RLAlloc4LM's three experts. Every so many steps the deterministic policy decides the same
workloads, which no training sees.

Each run is kept as a file in the folder, and is not run again: it can be interrupted at any time. The table comes
from all files of the chosen seeds. docs/results/imitation.md explains it.
"""

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
import matplotlib.pyplot as plt
import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc.errors import PolicyError
from rlalloc.heuristics.named import policy_named
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc_agent.tanh_gaussian import TanhGaussian
from rlalloc_simulator.gym_environment import ClusterEnvironment
from rlalloc_trainer.imitation.cloning import CloningTerm, WarmStart, clone
from rlalloc_trainer.imitation.demonstrations import Demonstrations, Recorded, record
from rlalloc_trainer.imitation.expert_actor import expert_shares
from rlalloc_trainer.sac.environment_training import OnlineSettings, OnlineTraining
from rlalloc_trainer.sac.plain_actor import PlainActor
from rlalloc_trainer.sac.prioritised_replay import PrioritisedReplay, PrioritySettings
from rlalloc_trainer.sac.replay_buffer import Replay
from rlalloc_trainer.sac.soft_actor_critic import Sac, SacSettings, plain_settings

JOBS: Final = 12
"""Of a workload, about. Plain SAC learned next to nothing in 9,000 steps with 30: one decision's effect drowns."""
LOOK_AHEAD: Final = 64
"""Returns look to the end of the workload: no workload of so few jobs has as many decisions."""
HIDDEN: Final = (64, 64)
EVALUATION_WORKLOADS: Final = range(3_000_000, 3_000_024)
SMOOTHED_OVER: Final = 3
"""Evaluations in the running mean."""
RLALLOC4LM: Final = ("fcfs", "sjf", "round-robin")
PLAIN: Final = "plain SAC"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way to learn. Nothing is imitated where there are no ``experts``.

    ``workloads`` are demonstrated; with a cloning ``term`` they are in the replay too. ``critics_first`` are the
    batches that only critics learn from before the actor moves: of demonstrations, as many as ``pretraining`` says,
    then of what the cloned actor experiences too.
    """

    prioritised: bool = False
    experts: tuple[str, ...] = ()
    workloads: int = 50
    warm_start: WarmStart | None = None
    term: CloningTerm | None = None
    pretraining: int = 0
    critics_first: int = 0


WARM: Final = Arm(prioritised=True, experts=("price-ef",), warm_start=WarmStart(steps=1000))
FULL: Final = msgspec.structs.replace(
    WARM, term=CloningTerm(weight=3.0, fades_after=12_000), pretraining=400, critics_first=600
)
ARMS: Final = {
    PLAIN: Arm(),
    "+ prioritised replay": Arm(prioritised=True),
    "+ warm start": WARM,
    "+ critics first, cloning term": FULL,
    "the same, RLAlloc4LM's experts": msgspec.structs.replace(FULL, experts=RLALLOC4LM),
}


class Run(msgspec.Struct, frozen=True):
    """Mean return of the evaluation workloads after so many steps, and how many steps were demonstrated before."""

    arm: Arm
    seed: int
    demonstrated: int
    steps: list[int]
    returns: list[float]


def run_ablation(folder: Path, seeds: int, steps: int, every: int, png: Path | None) -> None:
    """Run what is missing in ``folder``, print the table and draw the plot. Raises PolicyError for other settings."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[Run]] = {}
    for seed, (number, (name, arm)) in itertools.product(range(seeds), enumerate(ARMS.items())):
        path = folder / f"{number}-{seed}-{steps}.json"
        if not path.exists():
            began = time.perf_counter()
            run = run_arm(arm, seed, steps, every)
            path.write_bytes(msgspec.json.encode(run))
            print(f"{name}, seed {seed}: {run.returns[-1]:.3f} ({time.perf_counter() - began:.0f} s)", flush=True)
        run = msgspec.json.decode(path.read_bytes(), type=Run)
        if run.arm != arm:
            raise PolicyError(f"{path} has other settings: name another folder")
        runs.setdefault(name, []).append(run)
    experts = {name: expert_return(name) for name in ("price-ef", *RLALLOC4LM)}
    print("\n".join(table(runs, experts)))
    if png is not None:
        draw(runs, experts, png)


def run_arm(arm: Arm, seed: int, steps: int, every: int) -> Run:
    """Learn for ``steps`` steps of the environment, and evaluate on the way. Deterministic for a seed."""
    environment = ClusterEnvironment(jobs=JOBS)
    features, actions = len(DEFAULT_INPUTS), environment.action_space.sample().size
    shown = demonstrations(arm.experts, arm.workloads) if arm.experts else None
    torch.manual_seed(seed)
    sac = Sac(PlainActor(features, actions, HIDDEN), sac_settings(actions, arm), seed)
    settings = online_settings(arm)
    if shown and arm.warm_start:
        clone(sac.actor, shown.transitions, arm.warm_start, np.random.default_rng(seed))
    replay: Replay | PrioritisedReplay = Replay(steps, features, actions)
    if arm.prioritised:
        kept = shown.transitions if shown and arm.term else None
        replay = PrioritisedReplay(
            steps, features, actions, PrioritySettings(batches_to_one=steps // settings.train_every), kept
        )
    training = OnlineTraining(sac, [environment], replay, settings, seed, arm.term)
    evaluated, returns = [0], [evaluate(sac.actor)]
    while training.steps < steps:
        training.run(every)
        evaluated.append(training.steps)
        returns.append(evaluate(sac.actor))
    return Run(arm, seed, len(shown.transitions) if shown else 0, evaluated, returns)


def sac_settings(actions: int, arm: Arm) -> SacSettings:
    """Settings of all arms: the paper's, but a temperature for rewards of hundredths, and critics held back."""
    return msgspec.structs.replace(
        plain_settings(actions),
        critic_rate=5e-4,
        weight_decay=0.1,
        temperature=0.003,
        temperature_rate=3e-4,
        actor_after=arm.critics_first,
    )


def online_settings(arm: Arm) -> OnlineSettings:
    """Random shares at first, but where cloning has given the actor a start; returns look ahead to the end.

    Eight steps for each update: more updates on the same noisy returns only learn them by heart. Critics that learn
    alone at first need not wait for as much experience.
    """
    return OnlineSettings(
        look_ahead=LOOK_AHEAD,
        random_steps=0 if arm.warm_start else None,
        learning_starts=1000 if arm.critics_first == 0 else 100,
        train_every=8,
        pretraining=arm.pretraining,
    )


def evaluate(actor: TanhGaussian) -> float:
    """Mean return of the evaluation workloads under the deterministic policy."""

    def decide(observation: NDArray[np.float32], _: ClusterEnvironment) -> NDArray[np.float32]:
        shares, _densities = actor.decide(observation[None], sample=False)
        action: NDArray[np.float32] = shares[0].astype(np.float32)
        return action

    return mean_return(decide)


def expert_return(name: str) -> float:
    """Mean return of the evaluation workloads under an expert."""
    expert = policy_named(name)
    return mean_return(lambda _, environment: expert_shares(environment, expert))


def mean_return(decide: Callable[[NDArray[np.float32], ClusterEnvironment], NDArray[np.float32]]) -> float:
    """Mean return of the evaluation workloads, whose jobs get what ``decide`` says to an observation (features,)."""
    environment = ClusterEnvironment(jobs=JOBS)
    total = 0.0
    for workload in EVALUATION_WORKLOADS:
        observation, _ = environment.reset(options={"workload": workload})
        ended = False
        while not ended:
            observation, reward, ended, _, _ = environment.step(decide(observation, environment))
            total += reward
    return total / len(EVALUATION_WORKLOADS)


def smoothed(returns: Sequence[float]) -> NDArray[np.float64]:
    """Running mean over the latest SMOOTHED_OVER evaluations; over those there are, at the start."""
    return np.array([np.mean(returns[max(0, end - SMOOTHED_OVER) : end]) for end in range(1, len(returns) + 1)])


def steps_until(run: Run, target: float) -> float:
    """Return the steps after which the smoothed return is ``target`` or more; infinite if it never is."""
    reached = np.flatnonzero(smoothed(run.returns) >= target)
    return float(run.steps[reached[0]]) if len(reached) else float("inf")


def kept_from(run: Run, target: float) -> float:
    """Return the steps from which on the smoothed return stays at ``target`` or more; infinite if it ends below."""
    below = np.flatnonzero(smoothed(run.returns) < target)
    first = int(below[-1]) + 1 if len(below) else 0
    return float(run.steps[first]) if first < len(run.steps) else float("inf")


def table(runs: Mapping[str, Sequence[Run]], experts: Mapping[str, float]) -> list[str]:
    """Lines of Markdown. A run that never reaches the target, or does not keep it, counts as the whole budget."""
    target = float(np.mean([smoothed(run.returns)[-1] for run in runs[PLAIN]]))
    budget = runs[PLAIN][0].steps[-1]

    def steps(those: Sequence[Run], measured: Callable[[Run, float], float]) -> NDArray[np.float64]:
        return np.array([min(budget, measured(run, target)) for run in those])

    plain = {measured: steps(runs[PLAIN], measured).mean() for measured in (steps_until, kept_from)}
    lines = [
        f"plain SAC ends at {target:.3f} after {budget:,} steps; experts: "
        + ", ".join(f"{name} {worth:.3f}" for name, worth in experts.items()),
        "",
        f"| {len(runs[PLAIN])} seeds | start | end | lowest | shown | until | fewer | kept from | fewer | not kept |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, those in runs.items():
        curves = np.array([smoothed(run.returns) for run in those])
        shown = those[0].demonstrated
        cells = [
            f"{curves[:, 0].mean():.3f}",
            over_seeds(curves[:, -1], ".3f"),
            f"{curves.min(axis=1).mean():.3f}",
            f"{shown:,}",
        ]
        for measured, of_plain in plain.items():
            needed = steps(those, measured)
            fewer = 1.0 - (needed.mean() + shown) / of_plain
            cells += [over_seeds(needed, ",.0f"), f"{fewer:.0%}"]
        cells.append(str(sum(np.isinf(kept_from(run, target)) for run in those)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def over_seeds(values: NDArray[np.float64], form: str) -> str:
    """Mean ± deviation of values (seeds,), each in a format; of one seed its value."""
    deviation = f" ± {values.std(ddof=1):{form}}" if len(values) > 1 else ""
    return f"{values.mean():{form}}{deviation}"


def draw(runs: Mapping[str, Sequence[Run]], experts: Mapping[str, float], path: Path) -> None:
    """Draw each arm's smoothed returns, mean and spread over seeds, and the experts' as lines."""
    mpl.use("agg")
    figure, axes = plt.subplots(figsize=(8.0, 4.5), layout="constrained")
    for name, those in runs.items():
        curves = np.array([smoothed(run.returns) for run in those])
        mean, steps = curves.mean(axis=0), those[0].steps
        spread = curves.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros_like(mean)
        (line,) = axes.plot(steps, mean, label=name)
        axes.fill_between(steps, mean - spread, mean + spread, alpha=0.15, color=line.get_color(), linewidth=0)
    for name, worth in experts.items():
        axes.axhline(worth, color="grey", linewidth=0.8, linestyle=":")
        axes.annotate(name, (1.0, worth), xycoords=("axes fraction", "data"), fontsize="x-small", color="grey")
    axes.set_xlabel("steps in the environment (demonstrated ones not counted)")
    axes.set_ylabel(f"mean return, {len(EVALUATION_WORKLOADS)} workloads not trained on")
    axes.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


@functools.cache
def demonstrations(experts: tuple[str, ...], workloads: int) -> Demonstrations:
    """What experts show of so many workloads: the same for every seed."""
    return record(
        ClusterEnvironment(jobs=JOBS), Recorded(experts=experts, workloads=workloads, look_ahead=LOOK_AHEAD)
    )
