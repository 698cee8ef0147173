"""The policy store: whole or not at all, verified, promoted atomically."""

import threading
from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import PolicyError
from rlalloc.observation import FEATURES, SCHEMA_VERSION
from rlalloc.policies import ACTOR_FILE, Manifest, PolicyStore, verify

MANIFEST = Manifest(
    version="",
    parent=None,
    created_s=1.0,
    observation_schema=SCHEMA_VERSION,
    features=FEATURES,
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


def test_a_changed_file_is_never_promoted(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    version = store.add({ACTOR_FILE: b"good"}, MANIFEST)
    (tmp_path / version / ACTOR_FILE).write_bytes(b"evil")
    with pytest.raises(PolicyError, match="differs from its manifest's SHA-256"):
        store.promote(version)
    assert store.current() is None


def test_another_schema_is_refused(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    version = store.add({ACTOR_FILE: b"x"}, msgspec.structs.replace(MANIFEST, observation_schema=99))
    with pytest.raises(PolicyError, match="observation schema 99"):
        store.promote(version)


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
        store.put_in_use(first)
    other.join()
    assert store.current() == second
