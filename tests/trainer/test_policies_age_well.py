"""Features and heuristics come and go: what was learned and what was stored stay of use."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa
import torch

from rlalloc.config import TrainerSection
from rlalloc.heuristics import SERVED_HEURISTICS, largest
from rlalloc.job import SHARES
from rlalloc.observation import FEATURES, POOL_FEATURES, SCHEMA_ID, EncodedQuestion, recalled
from rlalloc.policy.policies import CURRENT, PolicyStore
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS, PolicyInputs
from rlalloc.store import Experience
from rlalloc.store.migrations.versions.r0003_feature_names import NAMES_OF_0_1
from rlalloc_agent.actor import Actor
from rlalloc_agent.served_policy import ServedPolicy, load_shipped
from rlalloc_trainer.pipelines import retrain as module
from rlalloc_trainer.pipelines.retrain import load_in_use, retrain
from rlalloc_trainer.pipelines.site_experience import observations_of, question_of, readable, usable
from rlalloc_trainer.promotion import held_out_evidence
from rlalloc_trainer.promotion.policy_versions import load_shipped_version
from tests.agent.running_server import add_version, questions
from tests.trainer.sites import experience_of, site_workload, stored

SMALL = TrainerSection(steps=30, min_experience=20)


@pytest.fixture(scope="module")
def experiences() -> list[Experience]:
    return experience_of(site_workload(1))


@pytest.fixture(autouse=True)
def few_and_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the product has it, but with little work and without starting processes."""
    for name, value in {"TRAIN_WORKLOADS": 2, "CHOICE_WORKLOADS": 2, "HELD_OUT_WORKLOADS": 4, "WORKERS": 1}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "workload_jobs", lambda _: 25)


def as_rlalloc_0_1_stored(experience: Experience) -> Experience:
    """The same experience in a row of schema 7: the heuristics' answers among the features."""
    question = asked(experience)
    return with_decision(
        experience,
        observation_schema=7,
        observation=PolicyInputs(NAMES_OF_0_1).row(question).tobytes(),
        alternatives=None,
    )


def as_stored_with_other_features(experience: Experience) -> Experience:
    """The same experience of an rlalloc that had a feature more and two fewer."""
    features = np.frombuffer(experience.decision.observation or b"", "<f4")
    return with_decision(
        experience, observation_schema=11, observation=np.append(features[2:], np.float32(1)).tobytes()
    )


OTHER_FEATURES = (*FEATURES[2:], "moon_phase")


def with_decision(experience: Experience, **changes: object) -> Experience:
    return msgspec.structs.replace(experience, decision=msgspec.structs.replace(experience.decision, **changes))


def asked(experience: Experience) -> EncodedQuestion:
    question = recalled(FEATURES, experience.decision.observation or b"", experience.decision.alternatives)
    assert question is not None
    return question


def retrained_version(experiences: Sequence[Experience], folder: Path) -> dict[str, str]:
    """The SHA-256 of the files of the version that a retraining on these stores."""
    folder.mkdir()
    store = stored(list(experiences), folder / "store.sqlite")
    policies = PolicyStore(folder / "policies")
    result = retrain(store, policies, SMALL)
    store.close()
    assert result.trained
    assert result.version is not None
    inputs = policies.manifest(result.version).inputs
    assert set(inputs) == {*FEATURES, *load_shipped()[1].inputs}
    return policies.manifest(result.version).files


@pytest.mark.slow
def test_what_rlalloc_0_1_stored_trains_the_same_policy(experiences: list[Experience], tmp_path: Path) -> None:
    """Bit by bit: nothing of it is lost."""
    earlier = [as_rlalloc_0_1_stored(each) for each in experiences]
    assert retrained_version(earlier, tmp_path / "earlier") == retrained_version(experiences, tmp_path / "today")


def test_of_what_rlalloc_0_1_stored_a_network_reads_only_what_was_asked(experiences: list[Experience]) -> None:
    """That version had no known-gain, and a network that is trained from scratch adds to its answers."""
    names = {7: NAMES_OF_0_1}
    earlier = usable([as_rlalloc_0_1_stored(each) for each in experiences], names)
    assert len(earlier) == len(experiences)
    assert readable(earlier, load_shipped()[0].inputs) == earlier
    assert readable(earlier, PolicyInputs()) == []
    assert len(observations_of([*experiences[:1], *earlier[:1]], load_shipped()[0].inputs)) == 2


def test_a_change_of_the_features_from_end_to_end(experiences: list[Experience], tmp_path: Path) -> None:
    """The policy in use reads a feature that is gone, and decisions were stored with it.

    The shipped policy takes over, the experience is encoded anew, a retraining starts from the shipped policy, and
    what it makes can be promoted and served.
    """
    store = stored([as_stored_with_other_features(each) for each in experiences], tmp_path / "store.sqlite")
    add_feature_set(tmp_path / "store.sqlite", 11, OTHER_FEATURES)
    policies = PolicyStore(tmp_path / "policies")
    gone = add_version(policies, Actor(("moon_phase", *DEFAULT_INPUTS)))
    (policies.directory / CURRENT).symlink_to(gone)

    served = ServedPolicy(policies.directory, Counter())
    assert served.version == load_in_use(policies, policies.current()).version == load_shipped()[1].version
    assert f"policy {gone} cannot be served" in served.problem

    again = usable(store.experience(), store.feature_names())
    assert len(again) == len(experiences)
    row = question_of(again[0]).by_name()
    assert [row[name] for name in FEATURES[:2]] == [0.0, 0.0]
    assert row["free_gpus"] == asked(experiences[0]).by_name()["free_gpus"]

    result = retrain(store, policies, SMALL)
    assert result.trained
    assert result.version is not None
    policies.promote(result.version)
    served.refresh()
    assert (served.version, served.problem) == (result.version, "")
    assert served.actor.decide(questions(1), sample=False)[0].shape == (1, 4)
    store.close()


def test_a_new_heuristic_invalidates_nothing(
    experiences: list[Experience], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = PolicyStore(tmp_path / "policies")
    version = add_version(policies, Actor())
    policies.promote(version)
    store = stored(list(experiences), tmp_path / "store.sqlite")
    monkeypatch.setitem(SERVED_HEURISTICS, "largest", largest)
    monkeypatch.setattr(held_out_evidence, "GATE_HEURISTICS", (*held_out_evidence.GATE_HEURISTICS, "largest"))

    served = ServedPolicy(policies.directory, Counter())
    assert (served.version, served.problem) == (version, "")
    again = usable(store.experience(), store.feature_names())
    assert (observations_of(again, PolicyInputs()) == observations_of(experiences, PolicyInputs())).all()
    assert set(store.feature_names()) == {7, SCHEMA_ID}
    assert "largest" not in question_of(again[0]).alternatives
    result = retrain(store, policies, SMALL)
    assert result.trained
    assert result.verdict is not None
    assert "largest" in result.verdict.evidence.against_heuristics
    store.close()


def test_a_network_may_read_a_new_heuristic(experiences: list[Experience], monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not learn from what was stored before: nobody knows what that heuristic would have answered."""
    monkeypatch.setitem(SERVED_HEURISTICS, "largest", largest)
    inputs = PolicyInputs(("largest:gpu_share", *DEFAULT_INPUTS))
    assert not inputs.missing()
    assert readable(usable(experiences, {SCHEMA_ID: FEATURES}), inputs) == []


def test_decisions_under_names_that_nobody_knows_are_left_out(experiences: list[Experience]) -> None:
    assert usable(experiences, {}) == []


def add_feature_set(path: Path, number: int, names: tuple[str, ...]) -> None:
    """As an rlalloc with these features would have."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(
            sa.text("INSERT INTO feature_sets (id, names) VALUES (:id, :names)"),
            {"id": number, "names": msgspec.json.encode(names).decode()},
        )
    engine.dispose()


def test_a_policy_that_is_trained_on_reads_what_is_new_and_answers_the_same_at_first() -> None:
    """The shipped network knows nothing of pools; a retrained one reads them, and its critics, too."""
    before = load_shipped_version()
    assert not set(POOL_FEATURES) & set(before.actor.inputs.names)
    after = before.with_all_features()
    assert after.actor.inputs.names == (*POOL_FEATURES, *before.actor.inputs.names)
    assert after.with_all_features() is after
    batch = questions(8)
    rows = [torch.from_numpy(each.actor.inputs.rows(batch)) for each in (before, after)]
    rows[1][:, :4] = 0.7
    torch.testing.assert_close(after.actor.mean(rows[1]), before.actor.mean(rows[0]))
    assert before.critics is not None
    assert after.critics is not None
    shares = torch.rand(8, SHARES, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(after.critics(rows[1], shares), before.critics(rows[0], shares))


def test_a_new_network_answers_the_same_whatever_the_pool_until_it_has_learned_of_pools() -> None:
    actor = Actor()
    torch.nn.init.normal_(actor.residual.weight)
    rows = torch.from_numpy(actor.inputs.rows(questions(4)))
    other = rows.clone()
    other[:, [actor.inputs.names.index(name) for name in POOL_FEATURES]] = 0.7
    torch.testing.assert_close(actor.mean(other), actor.mean(rows))
