"""Our SAC against stable-baselines3's: the same task, networks, settings and budget, several seeds of each.

Every so many steps the deterministic policy of both runs the same episodes. A finished seed is kept in the folder and
not run again: an interrupted check goes on, and more seeds can be added later. Prints

- the learning curves, as mean and standard deviation over seeds;
- in how many seeds the last quarter is above the untrained policy, since curves agree easily where nobody learns;
- whether the two agree: the difference of their means is at most the pooled standard deviation, for the whole curve
  and for its last quarter. Two samples of the same thing fail that now and then (with 3 seeds each, one time in
  five), so the exact p-value of a permutation test stands beside it.

docs/results/sac.md has figures.
"""

import itertools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import gymnasium
import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rlalloc_simulator import gym_environment as cluster
from rlalloc_trainer.sac.environment_training import OnlineSettings, plain_training
from rlalloc_trainer.sac.soft_actor_critic import plain_settings

EVALUATION_SEED: Final = 1_000_000
LIBRARIES: Final = ("rlalloc", "stable-baselines3")
Act = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From observations (rows, features) to actions (rows, actions) as the environment takes them."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What both learn, and with which settings.

    ``rate`` is Adam's for actor, critics and temperature alike; ``look_ahead`` is n of the n-step returns. Every
    ``every`` steps there is an evaluation on ``episodes`` episodes.
    """

    environment: str
    options: dict[str, Any] = {}
    steps: int
    every: int
    episodes: int = 10
    hidden: tuple[int, ...] = (64, 64)
    rate: float = 1e-3
    batch: int = 128
    gamma: float = 0.99
    temperature: float = 1.0
    look_ahead: int = 1
    learning_starts: int = 200
    train_every: int = 1


TASKS: Final = {
    "pendulum": Task(environment="Pendulum-v1", steps=5000, every=500),
    # What one decision changes in an episode's return is small beside what workloads differ by: short workloads,
    # returns to their end, many steps for an update. Rewards add up to about -0.5, of which entropy at a temperature
    # of 1 would leave nothing to see.
    "cluster": Task(
        environment=cluster.ENVIRONMENT,
        options={"jobs": 12},
        steps=6000,
        every=600,
        episodes=24,
        rate=5e-4,
        batch=256,
        temperature=0.003,
        look_ahead=64,
        learning_starts=1000,
        train_every=8,
    ),
}


class Curve(msgspec.Struct, frozen=True):
    """One seed: the mean return of the deterministic policy after so many steps."""

    steps: list[int]
    returns: list[float]


def run_check(tasks: Sequence[str], seeds: int, folder: Path, png: Path | None) -> None:
    """Run what is missing in ``folder``, print the comparison of each task, and draw it."""
    torch.set_num_threads(1)
    console = Console(width=110)  # the table's, also where nobody looks
    found: dict[str, dict[str, list[Curve]]] = {}
    for name in tasks or TASKS:
        found[name] = {library: [] for library in LIBRARIES}
        for seed, library in itertools.product(range(seeds), LIBRARIES):
            curve = kept(folder / f"{name}-{library}-{seed}.json", TASKS[name], library, seed)
            found[name][library].append(curve)
            console.print(f"{name}, {library}, seed {seed}: {curve.returns[-1]:.3f} at the end", highlight=False)
        console.print(comparison(name, found[name]))
    if png is not None:
        draw(found, png)


def kept(path: Path, task: Task, library: str, seed: int) -> Curve:
    """Return the curve that ``path`` holds, made first where it is missing."""
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Curve)
    curve = (ours if library == LIBRARIES[0] else theirs)(task, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(curve))
    return curve


def ours(task: Task, seed: int) -> Curve:
    """Learn with rlalloc_trainer."""
    made = gymnasium.make(task.environment, **task.options)
    actions = int(np.prod(made.action_space.shape or ()))
    settings = msgspec.structs.replace(
        plain_settings(actions),
        batch=task.batch,
        actor_rate=task.rate,
        critic_rate=task.rate,
        temperature_rate=task.rate,
        temperature=task.temperature,
    )
    loop = OnlineSettings(
        gamma=task.gamma,
        look_ahead=task.look_ahead,
        learning_starts=task.learning_starts,
        train_every=task.train_every,
    )
    training = plain_training([made], settings, loop, task.hidden, seed)
    space = made.action_space
    assert isinstance(space, gymnasium.spaces.Box)

    def act(observations: NDArray[np.float32]) -> NDArray[np.float32]:
        shares, _ = training.sac.actor.decide(observations, sample=False)
        return np.asarray(space.low + shares * (space.high - space.low), dtype=np.float32)

    return _curve(task, training.run, act)


def theirs(task: Task, seed: int) -> Curve:
    """Learn with stable-baselines3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others' packages warn of on their import is not ours to mend
        from stable_baselines3 import SAC
    model = SAC(
        "MlpPolicy",
        gymnasium.make(task.environment, **task.options),
        learning_rate=task.rate,
        buffer_size=OnlineSettings().capacity,
        learning_starts=task.learning_starts,
        batch_size=task.batch,
        gamma=task.gamma,
        n_steps=task.look_ahead,
        train_freq=task.train_every,
        ent_coef=f"auto_{task.temperature}",
        policy_kwargs={"net_arch": list(task.hidden)},
        seed=seed,
        device="cpu",
    )

    def act(observations: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(model.predict(observations, deterministic=True)[0], dtype=np.float32)

    return _curve(task, lambda steps: model.learn(steps, reset_num_timesteps=False), act)


def _curve(task: Task, learn: Callable[[int], object], act: Act) -> Curve:
    steps, returns = [0], [evaluate(task, act)]
    while steps[-1] < task.steps:
        learn(task.every)
        steps.append(steps[-1] + task.every)
        returns.append(evaluate(task, act))
    return Curve(steps, returns)


def evaluate(task: Task, act: Act) -> float:
    """Return the mean return of ``act`` over the evaluation episodes, which step side by side."""
    environments: list[gymnasium.Env[Any, Any]] = [
        gymnasium.make(task.environment, **task.options) for _ in range(task.episodes)
    ]
    seen = {number: each.reset(seed=EVALUATION_SEED + number)[0] for number, each in enumerate(environments)}
    total = 0.0
    while seen:
        actions = act(np.stack(list(seen.values())).astype(np.float32))
        for number, action in zip(list(seen), actions, strict=True):
            seen[number], reward, terminated, truncated, _ = environments[number].step(action)
            total += float(reward)
            if terminated or truncated:
                del seen[number]
    return total / task.episodes


def comparison(name: str, curves: dict[str, list[Curve]]) -> Table:
    """Return both curves at every second point, and whether they agree."""
    task = TASKS[name]
    mine, other = (np.array([curve.returns for curve in curves[library]]) for library in LIBRARIES)
    table = Table(title=f"{task.environment}: mean return of {task.episodes} episodes, {len(mine)} seeds each")
    for heading in ("steps", *LIBRARIES, "difference / pooled sd", "p", "bands overlap"):
        table.add_column(heading, justify="right")
    points = {str(step): number for number, step in enumerate(curves[LIBRARIES[0]][0].steps)}
    rows = {label: (mine[:, number], other[:, number]) for label, number in list(points.items())[::2]}
    last = max(1, len(points) // 4)
    rows["whole curve"] = (mine[:, 1:].mean(axis=1), other[:, 1:].mean(axis=1))
    rows["last quarter"] = (mine[:, -last:].mean(axis=1), other[:, -last:].mean(axis=1))
    for label, (one, two) in rows.items():
        pooled, apart = pooled_deviation(one, two), abs(one.mean() - two.mean())
        table.add_row(
            label,
            *(f"{each.mean():.4g} ± {each.std(ddof=1):.2g}" for each in (one, two)),
            f"{apart / pooled:.2f}",
            f"{permutation_p(one, two):.2f}",
            "yes" if apart <= one.std(ddof=1) + two.std(ddof=1) else "no",
        )
    judged = [rows[label] for label in ("whole curve", "last quarter")]
    agree = all(abs(one.mean() - two.mean()) <= pooled_deviation(one, two) for one, two in judged)
    learned = "; ".join(
        f"{library} is above its untrained self in {(end > returns[:, 0]).sum()} of {len(end)} seeds"
        for library, returns, end in zip(LIBRARIES, (mine, other), rows["last quarter"], strict=True)
    )
    table.caption = f"{'They agree' if agree else 'They do not agree'} within their spread. {learned}."
    return table


def pooled_deviation(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Return the standard deviation of samples of the same size about their own means."""
    return float(np.sqrt((one.var(ddof=1) + two.var(ddof=1)) / 2.0))


def permutation_p(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Return how often a split of all values into two such groups has means as far apart, over every split."""
    values = np.concatenate((one, two))
    apart = abs(one.mean() - two.mean())
    splits = [
        np.isin(np.arange(len(values)), group) for group in itertools.combinations(range(len(values)), len(one))
    ]
    return float(np.mean([abs(values[of].mean() - values[~of].mean()) >= apart - 1e-12 for of in splits]))


def draw(found: dict[str, dict[str, list[Curve]]], path: Path) -> None:
    """Draw the mean of each library's curves with a band of one standard deviation, and each seed thinly."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(6 * len(found), 4), layout="constrained", squeeze=False)
    for axis, (name, curves) in zip(axes[0], found.items(), strict=True):
        for library, colour in zip(LIBRARIES, ("tab:blue", "tab:orange"), strict=True):
            steps, returns = curves[library][0].steps, np.array([curve.returns for curve in curves[library]])
            mean, deviation = returns.mean(axis=0), returns.std(axis=0, ddof=1)
            axis.plot(steps, mean, color=colour, label=f"{library}, {len(returns)} seeds")
            axis.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=0.2)
            for each in returns:
                axis.plot(steps, each, color=colour, linewidth=0.5, alpha=0.6)
        axis.set(
            title=TASKS[name].environment, xlabel="environment steps", ylabel="return of the deterministic policy"
        )
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=130)
