"""The policy store: whole or not at all, verified, promoted atomically."""

import os
import threading
from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import MissingInputsError, PolicyError
from rlalloc.heuristics import BASELINE_OF_0_1
from rlalloc.observation import answer_columns
from rlalloc.policy.policies import (
    ACTOR_FILE,
    CURRENT,
    HISTORY_FILE,
    MANIFEST_FILE,
    SHIPPED_NAME,
    Manifest,
    PolicyStore,
    read_manifest,
    verify,
)
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS

MANIFEST = Manifest(
    version="",
    parent=None,
    created_s=1.0,
    inputs=DEFAULT_INPUTS,
    hidden=(8,),
    files={},
    training={},
    evaluation={},
)


def test_versions_count_up_and_one_is_in_use(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path / "policies")
    assert store.versions() == ()
    assert store.current() is None
    first = store.add({ACTOR_FILE: b"one"}, MANIFEST)
    second = store.add({ACTOR_FILE: b"two"}, MANIFEST)
    assert store.versions() == (first, second) == ("v000001", "v000002")
    assert store.current() is None
    store.promote(second)
    store.promote(first)
    assert store.current() == first
    assert verify(store.path(first)).version == first


@pytest.mark.parametrize("name", ["promotions.jsonl", ".lock"])
def test_a_link_or_a_pipe_in_place_of_a_shared_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """Who may write the policies could lead whoever promotes to another file, or have the daemon wait for ever."""
    store = PolicyStore(tmp_path / "policies")
    elsewhere, path = tmp_path / "elsewhere", store.directory / name
    store.directory.mkdir()
    for kind in ("link", "pipe"):
        path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to(elsewhere)
        else:
            os.mkfifo(path)
        with pytest.raises(PolicyError):
            store.promote("shipped", by="root", reason="a\nb")
        if name != ".lock":
            with pytest.raises(PolicyError):
                store.promotions()
    assert not elsewhere.exists()


def test_a_changed_file_is_never_promoted(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    version = store.add({ACTOR_FILE: b"good"}, MANIFEST)
    (tmp_path / version / ACTOR_FILE).write_bytes(b"evil")
    with pytest.raises(PolicyError, match="differs from its manifest's SHA-256"):
        store.promote(version)
    assert store.current() is None


def test_a_version_that_reads_what_is_gone_is_refused(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    inputs = ("moon_phase", *DEFAULT_INPUTS)
    version = store.add({ACTOR_FILE: b"x"}, msgspec.structs.replace(MANIFEST, inputs=inputs))
    with pytest.raises(MissingInputsError, match="reads moon_phase, which this version of rlalloc does not have"):
        store.promote(version)


@pytest.mark.parametrize("inputs", [(), ("waited",), DEFAULT_INPUTS[:-1], ("waited", "waited", *DEFAULT_INPUTS[-4:])])
def test_inputs_that_no_actor_has_are_refused(tmp_path: Path, inputs: tuple[str, ...]) -> None:
    store = PolicyStore(tmp_path)
    version = store.add({ACTOR_FILE: b"x"}, msgspec.structs.replace(MANIFEST, inputs=inputs))
    with pytest.raises(PolicyError, match="the inputs of a policy are"):
        store.promote(version)


def manifest_of_0_1(schema: int) -> dict[str, object]:
    """A manifest as rlalloc 0.1 wrote it: a numbered schema, and no heuristic's name before the baseline's shares."""
    fields: dict[str, object] = msgspec.to_builtins(MANIFEST)
    fields.pop("inputs")
    shares = ["heuristic_gpu_share", "heuristic_cpu_share", "heuristic_mem_share", "heuristic_urgency"]
    return fields | {
        "observation_schema": schema,
        "features": [*DEFAULT_INPUTS[:-4], *shares],
        "answers": fields.pop("routing"),
    }


def test_a_manifest_of_rlalloc_0_1_is_read(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest_of_0_1(7)))
    answers = answer_columns(BASELINE_OF_0_1)
    assert read_manifest(tmp_path) == msgspec.structs.replace(MANIFEST, inputs=(*DEFAULT_INPUTS[:-4], *answers))


def test_a_version_of_before_0_1_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest_of_0_1(6)))
    with pytest.raises(MissingInputsError, match="observation schema 6"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["../etc", "v1", "current", ""])
def test_only_version_names_are_versions(tmp_path: Path, name: str) -> None:
    with pytest.raises(PolicyError, match="not a policy version"):
        PolicyStore(tmp_path).promote(name)


def test_a_missing_version_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no policy at"):
        PolicyStore(tmp_path).promote("v000009")


def test_two_promoters_do_not_interleave(tmp_path: Path) -> None:
    """While one holds the lock, another waits."""
    store = PolicyStore(tmp_path)
    first, second = (store.add({ACTOR_FILE: name}, MANIFEST) for name in (b"one", b"two"))
    other = threading.Thread(target=PolicyStore(tmp_path).promote, args=(second,))
    with store.locked():
        other.start()
        other.join(timeout=0.3)
        assert other.is_alive()
        assert store.current() is None
        store.put_in_use(first, by="ada", reason="a test")
    other.join()
    assert store.current() == second


@pytest.fixture
def three(tmp_path: Path) -> PolicyStore:
    """A policy store of three versions, none in use."""
    store = PolicyStore(tmp_path)
    for content in (b"one", b"two", b"three"):
        store.add({ACTOR_FILE: content}, MANIFEST)
    return store


def test_the_shipped_policy_can_be_put_in_use_again(three: PolicyStore) -> None:
    three.promote("v000002")
    three.promote(SHIPPED_NAME, by="ada", reason="v000002 is slow")
    assert three.current() is None
    last = three.promotions()[-1]
    assert (last.version, last.before, last.by, last.reason) == ("shipped", "v000002", "ada", "v000002 is slow")


def test_each_rollback_goes_one_version_further_back(three: PolicyStore) -> None:
    for version in ("v000001", "v000003", "v000003", "v000002"):
        three.promote(version)
    undone = [three.roll_back(by="ada", reason="worse") for _ in range(3)]
    assert undone == ["v000003", "v000001", "shipped"]
    with pytest.raises(PolicyError, match="no other was before it"):
        three.roll_back(by="ada", reason="worse")


def test_a_promotion_of_before_there_were_notes_is_rolled_back_to_its_parent(three: PolicyStore) -> None:
    child = three.add({ACTOR_FILE: b"four"}, msgspec.structs.replace(MANIFEST, parent="v000002"))
    (three.directory / CURRENT).symlink_to(child)
    assert three.roll_back(by="ada", reason="worse") == "v000002"


def test_a_version_that_is_gone_is_rolled_back_to_the_shipped_one(three: PolicyStore) -> None:
    """Without notes nobody knows what was before it; doctor names this command for it."""
    for gone in ("v000009", "nowhere"):
        (three.directory / CURRENT).unlink(missing_ok=True)
        (three.directory / CURRENT).symlink_to(gone)
        (three.directory / HISTORY_FILE).unlink(missing_ok=True)
        assert three.roll_back(by="ada", reason="it is gone") == SHIPPED_NAME
        assert three.current() is None


def test_what_could_not_be_put_in_use_is_not_noted(three: PolicyStore) -> None:
    three.promote("v000001")
    (three.directory / CURRENT).unlink()
    (three.directory / CURRENT).mkdir()  # nothing can be renamed over a folder
    with pytest.raises(PolicyError, match="cannot put v000002 in use"):
        three.promote("v000002")
    assert [change.version for change in three.promotions()] == ["v000001"]


def test_a_note_that_was_cut_short_is_left_out(three: PolicyStore) -> None:
    three.promote("v000001")
    with (three.directory / HISTORY_FILE).open("a") as file:
        file.write('{"time_s": 1')
    assert [change.version for change in three.promotions()] == ["v000001"]


def test_the_verdict_of_the_gate_is_known() -> None:
    refused = msgspec.structs.replace(MANIFEST, evaluation={"promote": False, "reason": "it is worse"})
    assert refused.refusal == "it is worse"
    assert MANIFEST.refusal is None
    assert msgspec.structs.replace(MANIFEST, evaluation={"promote": True, "reason": "better"}).refusal is None
