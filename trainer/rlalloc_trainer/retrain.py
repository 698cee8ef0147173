"""Retraining on a site's own experience: calibrate, train, evaluate, gate.

The earlier experience trains, the later one judges. Real decisions are few, so a twin of the site in the simulator
adds what they cannot tell: what would have become of other shares. Both go into one replay buffer.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc.config import TrainerSection
from rlalloc.observation import FEATURES
from rlalloc.policies import PolicyStore
from rlalloc.store import Experience, PolicyRow, Store
from rlalloc_agent.actor import SHARES, Actor
from rlalloc_trainer.counterfactual import Labels, LabelSettings, label
from rlalloc_trainer.evaluation import (
    ActorWeights,
    Contender,
    Map,
    Stream,
    evaluate,
    jct_ratio,
    policy_of,
    processes,
)
from rlalloc_trainer.experience import split_by_time, transitions_of, usable
from rlalloc_trainer.gate import Evidence, Verdict, judge
from rlalloc_trainer.progress import Report, silent
from rlalloc_trainer.replay import Replay, Transitions
from rlalloc_trainer.sac import Losses, Sac, SacSettings, learn
from rlalloc_trainer.twin import Site, resampled, twin_of
from rlalloc_trainer.versions import Learned, load_shipped_version, load_version, new_manifest, version_files

CANDIDATE: Final = "the candidate"
RIVALS: Final = ("as-requested", "repaired", "price-ef")
TRAIN_STREAMS: Final = 24
TRAIN_STREAM_JOBS: Final = 60
HELD_OUT_STREAMS: Final = 40
HELD_OUT_STREAM_JOBS: Final = 60
TRAIN_PACE: Final = (0.7, 1.5)
"""Training streams run at other paces than the site's own too, so that a busier week is no surprise."""
REAL_COPIES: Final = 4
"""Times that each real decision goes into the buffer: few as they are, they are the truth."""
FINE_TUNING: Final = SacSettings(actor_rate=1e-4, actor_after=300, batch=128)
"""Gentler than from nothing: there is a policy to lose."""
LABELS: Final = LabelSettings(decisions=20, alternatives=3)
RIDGE: Final = 0.01
WORKERS: Final = 2


class Retrained(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run: a verdict on ``version``, or why there was no training."""

    trained: bool
    reason: str
    experiences: int
    version: str | None = None
    promoted: bool = False
    verdict: Verdict | None = None


def retrain(store: Store, policies: PolicyStore, settings: TrainerSection, progress: Report = silent) -> Retrained:
    """Train on the stored experience, judge, store the candidate, and promote it if the gate says so.

    Raises StoreError or PolicyError.
    """
    experiences = usable(store.experience())
    if len(experiences) < settings.min_experience:
        return Retrained(
            trained=False,
            reason=(
                f"{len(experiences)} jobs with an outcome to learn from, trainer.min_experience asks for "
                f"{settings.min_experience}: run more jobs first"
            ),
            experiences=len(experiences),
        )
    train, held_out = split_by_time(experiences, settings.held_out_fraction)
    site, unseen = twin_of(train, train), twin_of(held_out, train)
    if len(site.jobs) < 2 or len(unseen.jobs) < 2:
        return Retrained(
            trained=False,
            reason=f"of {len(experiences)} jobs too few can be run again in the simulator: run more jobs first",
            experiences=len(experiences),
        )
    current = in_place(policies)
    generator = np.random.default_rng(settings.seed)
    with processes(WORKERS) as spread:
        sac = _train(train, site, in_place(policies), settings, generator, spread, progress)
        streams = resampled(unseen, HELD_OUT_STREAMS, HELD_OUT_STREAM_JOBS, generator)
        progress("judging", 0.7)
        verdict = judge(measure(ActorWeights.of(sac.actor), current, streams, len(unseen.jobs), settings, spread))
    progress("storing", 0.99)
    version = _keep(sac, current, verdict, policies, store, settings)
    return Retrained(
        trained=True,
        reason=verdict.reason,
        experiences=len(experiences),
        version=version,
        promoted=verdict.promote,
        verdict=verdict,
    )


def in_place(policies: PolicyStore) -> Learned:
    """Return the policy in use: the store's current version, else the shipped one. Raises PolicyError."""
    version = policies.current()
    return load_shipped_version() if version is None else load_version(policies.path(version))


def measure(
    candidate: Contender,
    current: Learned,
    streams: Sequence[Stream],
    held_out_jobs: int,
    settings: TrainerSection,
    spread: Map,
) -> Evidence:
    """Run the candidate, the policy in place and the heuristics on the same streams."""
    contenders: dict[str, Contender] = {
        CANDIDATE: candidate,
        current.version: ActorWeights.of(current.actor),
        **{name: name for name in RIVALS},
    }
    results = evaluate(contenders, streams, spread)
    against = {
        name: jct_ratio(results[CANDIDATE], results[name], settings.confidence)
        for name in contenders
        if name != CANDIDATE
    }
    return Evidence(
        candidate=CANDIDATE,
        current=current.version,
        against_current=against.pop(current.version),
        against_heuristics=against,
        killed_candidate=sum(result.killed for result in results[CANDIDATE]),
        killed_current=sum(result.killed for result in results[current.version]),
        held_out_jobs=held_out_jobs,
        streams=len(streams),
        confidence=settings.confidence,
    )


def _train(
    train: Sequence[Experience],
    site: Site,
    start: Learned,
    settings: TrainerSection,
    generator: np.random.Generator,
    spread: Map,
    progress: Report,
) -> Sac[Actor]:
    """Fine-tune ``start`` on the real decisions and on the twin's."""
    replay = Replay(100_000, len(FEATURES), SHARES)
    weights = ActorWeights.of(start.actor)
    streams = resampled(site, TRAIN_STREAMS, TRAIN_STREAM_JOBS, generator, TRAIN_PACE)
    tasks = [(stream, weights, settings.seed + number) for number, stream in enumerate(streams)]
    simulated = []
    for done, labels in enumerate(spread(label_stream, tasks), start=1):
        replay.add(labels.retaken)
        simulated.append(labels)
        progress("simulating the site", 0.4 * done / len(tasks))
    real = beyond_expectation(transitions_of(train), simulated)
    for _ in range(REAL_COPIES):
        replay.add(real)
    sac = Sac(start.actor, FINE_TUNING, settings.seed, start.critics)

    def each_step(_losses: Losses) -> None:
        progress("learning", 0.4 + 0.3 * sac.steps / settings.steps)

    learn(sac, replay, settings.steps, generator, each_step)
    return sac


def label_stream(task: tuple[Stream, Contender, int]) -> Labels:
    """Take decisions of a stream again, with random numbers of their own."""
    stream, contender, seed = task
    return label(stream.cluster, stream.jobs, policy_of(contender), LABELS, np.random.default_rng(seed))


def beyond_expectation(real: Transitions, simulated: Sequence[Labels]) -> Transitions:
    """Return real decisions with their rewards less what the twin's jobs in like situations lead to expect.

    So they are on one scale with the twin's gains. What is expected is a ridge regression of reward on observation;
    that the twin is kinder or harder than the site on average is taken out.
    """
    observation = np.concatenate([labels.observation for labels in simulated]).astype(np.float64)
    reward = np.concatenate([labels.reward for labels in simulated]).astype(np.float64)
    middle = observation.mean(axis=0)
    centred = observation - middle
    normal = centred.T @ centred + RIDGE * len(centred) * np.eye(centred.shape[1])
    weights = np.linalg.solve(normal, centred.T @ (reward - reward.mean()))
    surplus = real.reward - (real.observation - middle) @ weights
    return msgspec.structs.replace(real, reward=(surplus - surplus.mean()).astype(np.float32))


def _keep(
    sac: Sac[Actor],
    current: Learned,
    verdict: Verdict,
    policies: PolicyStore,
    store: Store,
    settings: TrainerSection,
) -> str:
    """Store the candidate whatever the verdict, promote it if that says so, and return its name."""
    training = {"settings": msgspec.to_builtins(sac.settings), "steps": sac.steps, "seed": settings.seed}
    plain: dict[str, object] = msgspec.to_builtins(verdict)
    manifest = new_manifest(sac.actor, current.version, training, plain)
    version = policies.add(version_files(sac.actor, sac.critics), manifest)
    if verdict.promote:
        policies.promote(version)
    store.add_policy(
        PolicyRow(
            version=version,
            parent=current.version,
            created_s=manifest.created_s,
            promoted=verdict.promote,
            verdict=plain,
        )
    )
    return version
