"""Profiles in the site's folder reach the daemon's decisions; a broken one changes nothing."""

import logging
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import Config, SpeedSection
from rlalloc.speed.family_speeds import FamilySpeeds
from rlalloc.speed.profile_file import AppliesTo, write_profile
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlallocd.knowledge.site_profiles import SiteProfiles
from tests.core.profiles import profile

from .test_family_runs import decision_of, limit_s
from .test_redecision_rules import EIGHT, pending_job

JOB = pending_job(99)
NAMED = AppliesTo(jobs=(JOB.name,))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(speed=SpeedSection(profiles=tmp_path))


def looked(config: Config, speeds: FamilySpeeds, profiles: SiteProfiles | None = None) -> Counter[str]:
    counters: Counter[str] = Counter()
    (profiles or SiteProfiles(counters)).read_into(speeds, config)
    return counters


def test_a_profile_changes_the_time_limit_of_the_job_that_it_names(config: Config) -> None:
    write_profile(profile(0.1, NAMED, counts=(1, 2, 4, 8)), config.speed.profiles / "a.yaml")
    speeds = FamilySpeeds()
    looked(config, speeds)
    assert EIGHT.time_limit_s < limit_s(speeds) < limit_s(FamilySpeeds())
    slowdown = decision_of(speeds).slowdown
    assert slowdown is not None
    assert slowdown.source == "profile gpt-25m-a100, which names it"
    assert 1.0 < slowdown.median < slowdown.allowed < 3.0


def test_a_broken_one_is_left_out_and_the_job_fares_as_without(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    folder = config.speed.profiles
    (folder / "broken.yaml").write_text("format: rlalloc-profile-1\npoints: 7\n")
    (folder / "notes.txt").write_text("no profile, and not taken for one")
    speeds = FamilySpeeds()
    with caplog.at_level(logging.WARNING):
        counters = looked(config, speeds)
    assert counters == {"profiles_left_out": 1}
    assert "a profile is left out" in caplog.text
    assert "broken.yaml" in caplog.text
    assert limit_s(speeds) == limit_s(FamilySpeeds())


def test_one_with_a_size_that_cannot_be_is_left_out(config: Config) -> None:
    """More nodes than GPUs have no speed; the time limit by it would end the daemon."""
    path = config.speed.profiles / "a.yaml"
    write_profile(profile(0.1, NAMED), path)
    path.write_text(path.read_text().replace("nodes: 1,", "nodes: 1000,"))
    speeds = FamilySpeeds()
    assert looked(config, speeds) == {"profiles_left_out": 1}
    assert limit_s(speeds) == limit_s(FamilySpeeds())


def test_a_broken_one_does_not_keep_others_out(config: Config) -> None:
    folder = config.speed.profiles
    (folder / "a.yaml").write_bytes(b"\x00")
    (folder / "c.yaml").symlink_to(folder / "gone")
    write_profile(profile(0.1, NAMED), folder / "b.yaml")
    speeds = FamilySpeeds()
    looked(config, speeds)
    assert speeds.of(JOB.user, JOB.name, EIGHT).belief is not PRIOR_BELIEF


def test_changes_are_taken_up_later_and_removed_files_forgotten(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles, speeds = SiteProfiles(Counter()), FamilySpeeds()
    looked(config, speeds, profiles)
    path = config.speed.profiles / "a.yaml"
    write_profile(profile(0.1, NAMED), path)
    looked(config, speeds, profiles)
    assert speeds.of(JOB.user, JOB.name, EIGHT).belief is PRIOR_BELIEF  # not yet
    monkeypatch.setattr("rlallocd.knowledge.site_profiles._LOOK_EVERY_S", 0.0)
    looked(config, speeds, profiles)
    known = speeds.of(JOB.user, JOB.name, EIGHT).belief
    assert known is not PRIOR_BELIEF
    looked(config, speeds, profiles)
    assert speeds.of(JOB.user, JOB.name, EIGHT).belief is known  # unchanged files are not read again
    path.unlink()
    looked(config, speeds, profiles)
    assert speeds.of(JOB.user, JOB.name, EIGHT).belief is PRIOR_BELIEF


def test_no_folder_is_no_profile(tmp_path: Path) -> None:
    config = msgspec.structs.replace(Config(), speed=SpeedSection(profiles=tmp_path / "none"))
    speeds = FamilySpeeds()
    assert not looked(config, speeds)
    assert speeds.of(JOB.user, JOB.name, EIGHT).belief is PRIOR_BELIEF
