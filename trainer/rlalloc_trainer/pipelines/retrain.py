"""Retraining on a site's own experience: calibrate, train, evaluate, gate.

The earlier experience trains, the later one judges. Real decisions are few, and say nothing about other shares: a
simulator calibrated on the site adds those. Both go into one replay buffer.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.config import ObjectiveSection, TrainerSection
from rlalloc.errors import MissingInputsError
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES
from rlalloc.policy.policies import Manifest, PolicyStore, Routing
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc.progress import ProgressCallback, silent
from rlalloc.store import Experience, Store
from rlalloc.urgency import UrgencyRules
from rlalloc_agent.actor import Actor
from rlalloc_simulator.parallel import ParallelMap, processes
from rlalloc_simulator.recorded_outcomes import Observed, observed
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_trainer.advantages.advantage_scale import size_of
from rlalloc_trainer.advantages.counterfactual import Advantages, AdvantageSettings, counterfactual_advantages
from rlalloc_trainer.advantages.weight_relabelling import RelabelledReplay, mostly
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_trainer.pipelines.calibrated_simulator import NO_URGENCY, calibrated_site, resampled, workload_jobs
from rlalloc_trainer.pipelines.site_experience import (
    costs_of,
    observations_of,
    readable,
    shares_of,
    split_by_time,
    usable,
)
from rlalloc_trainer.promotion.candidate_storage import JudgedCandidate, store_candidate
from rlalloc_trainer.promotion.gate import Verdict
from rlalloc_trainer.promotion.held_out_evidence import HeldOut, decide, measure
from rlalloc_trainer.promotion.policy_versions import (
    Learned,
    load_shipped_version,
    load_version,
    new_manifest,
    version_files,
)
from rlalloc_trainer.promotion.routing_choice import choose_routing
from rlalloc_trainer.sac.conditioned_critics import weight_conditioned_sac
from rlalloc_trainer.sac.soft_actor_critic import Losses, Sac, SacSettings, learn

log = logging.getLogger(__name__)

TRAIN_WORKLOADS: Final = 24
CHOICE_WORKLOADS: Final = 24
"""Workloads for choosing the candidate's routing, drawn again from the earlier experience."""
HELD_OUT_WORKLOADS: Final = 40
TRAIN_PACE: Final = (0.7, 1.5)
"""Jobs of training workloads also come slower and faster than on the site, so that the policy knows busier weeks."""
REAL_COPIES: Final = 4
"""Times that each real decision goes into the buffer: they are few, but true."""
FINE_TUNING: Final = SacSettings(batch=128, critic_rate=3e-4, actor_rate=1e-4, actor_after=300, anchor=0.5)
"""Gentler than training from nothing: there is a policy to lose, and a site's decisions are few."""
SITE_ADVANTAGES: Final = AdvantageSettings(decisions=20, alternatives=3)
RIDGE: Final = 0.01
WORKERS: Final = 2
DEFAULT_OBJECTIVE: Final = ObjectiveSection()


class Retrained(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run: a verdict on ``version``, or why there was no training."""

    trained: bool
    reason: str
    experiences: int
    version: str | None = None
    promoted: bool = False
    verdict: Verdict | None = None


def retrain(
    store: Store,
    policies: PolicyStore,
    settings: TrainerSection,
    progress: ProgressCallback = silent,
    objective: ObjectiveSection = DEFAULT_OBJECTIVE,
    urgency: UrgencyRules = NO_URGENCY,
) -> Retrained:
    """Train on the stored experience, judge, store the candidate, and promote it if the gate says so.

    ``urgency`` is what the site lets policies do to the order of its queue: the calibrated simulator does too.
    Raises StoreError, PolicyError, or PluginError where a term of the objective cannot be had.
    """
    experiences = usable(store.experience(), store.feature_names())
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
    site, unseen = calibrated_site(train, train, urgency), calibrated_site(held_out, train, urgency)
    if len(site.jobs) < 2 or len(unseen.jobs) < 2:
        return Retrained(
            trained=False,
            reason=f"of {len(experiences)} jobs too few can be run again in the simulator: run more jobs first",
            experiences=len(experiences),
        )
    in_use = policies.current()
    current = load_in_use(policies, in_use)
    generator = np.random.default_rng(settings.seed)
    with processes(WORKERS) as parallel_map:
        start = load_in_use(policies, in_use).with_all_features()
        sac = _train(train, site, start, settings, objective, generator, parallel_map, progress)
        progress("choosing a routing", 0.7)
        known = resampled(site, CHOICE_WORKLOADS, workload_jobs(site), generator, TRAIN_PACE)
        routing, _ = choose_routing(LearnedPolicy.of(sac.actor, objective=objective.weights), known, parallel_map)
        progress("judging", 0.8)
        workloads = resampled(unseen, HELD_OUT_WORKLOADS, workload_jobs(unseen), generator)
        candidate = LearnedPolicy.of(sac.actor, routing, objective.weights)
        results = measure(candidate, current, workloads, parallel_map, objective.weights)
        measured = HeldOut(results, current.version, len(unseen.jobs), settings.confidence)
        routing, verdict = decide(measured, routing, heuristics=objective.weights == DEFAULT_WEIGHTS)
    progress("storing", 0.99)
    judged = JudgedCandidate(*_version_of(sac, routing, current, settings), verdict, in_use)
    version, verdict = store_candidate(judged, policies, store)
    return Retrained(
        trained=True,
        reason=verdict.reason,
        experiences=len(experiences),
        version=version,
        promoted=verdict.promote,
        verdict=verdict,
    )


def load_in_use(policies: PolicyStore, version: str | None) -> Learned:
    """Return the policy of that version, the store's current one; None is the shipped one.

    The shipped one also stands in for a version that reads what this rlalloc does not have any more, as in the agent.
    Raises PolicyError where the version is missing or damaged.
    """
    if version is not None:
        try:
            return load_version(policies.path(version))
        except MissingInputsError as err:
            log.warning("%s; training starts from the policy that ships with rlalloc", err)
    return load_shipped_version()


def _train(
    train: Sequence[Experience],
    site: Workload,
    start: Learned,
    settings: TrainerSection,
    objective: ObjectiveSection,
    generator: np.random.Generator,
    parallel_map: ParallelMap,
    progress: ProgressCallback,
) -> Sac[Actor]:
    """Fine-tune ``start`` on the site's and on simulated decisions, mostly for the site's objective."""
    terms = (*TERM_NAMES, *objective.plugin_weights)
    further = np.array(list(objective.plugin_weights.values())) / size_of(objective.weights.array)
    replay = RelabelledReplay(100_000, start.actor.inputs, mostly(objective.weights), further.tolist())
    learned = LearnedPolicy.of(start.actor, objective=objective.weights)
    workloads = resampled(site, TRAIN_WORKLOADS, workload_jobs(site), generator, TRAIN_PACE)
    advantages = msgspec.structs.replace(SITE_ADVANTAGES, terms=terms, inputs=start.actor.inputs.names)
    tasks = [(workload, learned, advantages, settings.seed + number) for number, workload in enumerate(workloads)]
    simulated = []
    for done, (retaken, as_it_went) in enumerate(parallel_map(advantages_of_workload, tasks), start=1):
        replay.add(retaken.observation, retaken.shares, retaken.by_term)
        simulated.append(as_it_went)
        progress("simulating the site", 0.4 * done / len(tasks))
    if known := readable(train, start.actor.inputs):
        observation = observations_of(known, start.actor.inputs)
        advantage = real_advantages(observation, costs_of(known, terms), simulated)
        for _ in range(REAL_COPIES):
            replay.add(observation, shares_of(known), advantage)
    sac = weight_conditioned_sac(start.actor, FINE_TUNING, settings.seed, start.critics)

    def each_step(_losses: Losses) -> None:
        progress("learning", 0.4 + 0.3 * sac.steps / settings.steps)

    learn(sac, replay, settings.steps, generator, each_step)
    return sac


def advantages_of_workload(
    task: tuple[Workload, LearnedPolicy, AdvantageSettings, int],
) -> tuple[Advantages, Observed]:
    """Take decisions of a workload again, with their own random numbers; also return how the workload itself went."""
    workload, learned, settings, seed = task
    policy = learned.policy(workload.site.interception.urgency)
    retaken = counterfactual_advantages(workload, policy, settings, np.random.default_rng(seed))
    return retaken, observed(workload, policy, PolicyInputs(settings.inputs), settings.terms)


def real_advantages(
    observation: NDArray[np.float32], cost: NDArray[np.float64], simulated: Sequence[Observed]
) -> NDArray[np.float32]:
    """Return what real decisions (rows, inputs) gained by term, compared with what simulation expects.

    ``cost`` (rows, terms) is what they did cost. The result is on the scale of the counterfactual advantages. A ridge
    regression of simulated costs on observations gives the cost to expect; the mean difference between the site and
    its simulator is removed. NaN, a cost that is not known, stays NaN.
    """
    seen = np.concatenate([each.observation for each in simulated]).astype(np.float64)
    paid = np.concatenate([each.cost for each in simulated])
    middle = seen.mean(axis=0)
    centred = seen - middle
    normal = centred.T @ centred + RIDGE * len(centred) * np.eye(centred.shape[1])
    weights = np.linalg.solve(normal, centred.T @ (paid - paid.mean(axis=0)))
    surplus = (observation - middle) @ weights - cost
    known = ~np.isnan(surplus)
    mean = np.where(known, surplus, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.asarray(surplus - mean, dtype=np.float32)


def _version_of(
    sac: Sac[Actor], routing: Routing, current: Learned, settings: TrainerSection
) -> tuple[dict[str, bytes], Manifest]:
    """Return the files and the manifest of what was trained.

    Where a heuristic answers all decisions, nobody judged the new network: the one in use stays for other objectives.
    """
    if routing.nowhere:
        kept = current if current.critics is not None else current.with_all_features()  # as new critics do
        actor, critics = kept.actor, kept.critics or sac.critics
        training: dict[str, object] = {"kept_from": current.version}
    else:
        actor, critics = sac.actor, sac.critics
        training = {"settings": msgspec.to_builtins(sac.settings), "steps": sac.steps, "seed": settings.seed}
    return version_files(actor, critics), new_manifest(actor, current.version, training, {}, routing)
