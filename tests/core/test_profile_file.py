"""The file of a profile: what is written can be read, and what is wrong is refused with what to do."""

from pathlib import Path

import msgspec
import pytest
import yaml

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import AppliesTo, Profile, ProfilePoint, Size, read_profile, write_profile
from tests.core.profiles import measured, profile

GOOD = profile(0.9, AppliesTo(jobs=("train-7b*",), gpu_types=("a100",)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    write_profile(GOOD, path)
    return path


def test_what_is_written_is_read(path: Path) -> None:
    assert read_profile(path) == GOOD
    assert [each.name for each in path.parent.iterdir()] == ["a.yaml"]


def test_a_person_reads_one_point_a_line(path: Path) -> None:
    line = next(line for line in path.read_text().splitlines() if "gpus: 16" in line)
    assert "cpus_per_gpu: 1" in line
    assert path.read_text().startswith("format: rlalloc-profile-1\nname: gpt-25m-a100\n")


def test_a_point_takes_the_place_of_one_of_the_same_size() -> None:
    failed = GOOD.points[0].size
    again = GOOD.with_point(ProfilePoint(size=failed, outcome="failed", why="the node went down"))
    assert len(again.points) == len(GOOD.points)
    assert again.with_point(GOOD.points[0]) == GOOD
    assert again.point(failed) == ProfilePoint(size=failed, outcome="failed", why="the node went down")
    assert again.point(Size(gpus=3, nodes=1, cpus_per_gpu=1)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "rlalloc-profile-2"}, "this rlalloc reads rlalloc-profile-1"),
        ({"name": "../../etc"}, "name"),
        ({"unknown": 1}, "unknown"),
        ({"points": [{"size": {"gpus": 0, "nodes": 1, "cpus_per_gpu": 1}, "outcome": "failed"}]}, "gpus"),
        ({"points": [{"size": {"gpus": 1, "nodes": 1, "cpus_per_gpu": 1}, "outcome": "measured"}]}, "if and only if"),
        ({"applies_to": {"jobs": [""]}}, "jobs"),
        ({"conditions": None}, "conditions"),
    ],
)
def test_a_wrong_key_is_named(path: Path, change: dict[str, object], said: str) -> None:
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    with pytest.raises(ProfileError, match=said) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"just words",
        b"- 1\n- 2",
        b"\xff\xfe\x00",
        b"a: [",
        b"!!python/object/apply:os.system ['true']",
        b"a: &a [b]\nc: *d",
        b"[" * 5000,
    ],
)
def test_what_is_no_profile_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"a\.yaml: no profile"):
        read_profile(path)


def test_a_missing_file_and_a_huge_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="No such file"):
        read_profile(tmp_path / "none.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ProfileError, match="larger than any profile"):
        read_profile(tmp_path / "huge.yaml")


@pytest.mark.parametrize("wild", [".nan", ".inf", "-1.0", "0.0"])
def test_figures_that_are_no_speeds_are_refused(path: Path, wild: str) -> None:
    text = path.read_text()
    path.write_text(text.replace("tokens_per_s: 50000.0", f"tokens_per_s: {wild}", 1))
    assert path.read_text() != text
    with pytest.raises(ProfileError):
        read_profile(path)


def test_a_size_that_is_there_twice_is_refused(path: Path) -> None:
    tree = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(tree | {"points": tree["points"][:1] * 2}))
    with pytest.raises(ProfileError, match="listed twice"):
        read_profile(path)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot write"):
        write_profile(GOOD, tmp_path / "none" / "a.yaml")


def test_a_measured_point_and_a_failed_one_differ() -> None:
    size = Size(gpus=2, nodes=1, cpus_per_gpu=1)
    with pytest.raises(ValueError, match="if and only if"):
        ProfilePoint(size=size, outcome="failed", measured=measured(1.0))
    assert msgspec.to_builtins(Profile(name="a", created_s=1.0, conditions=GOOD.conditions))["points"] == ()
