"""Sites that run Slurm of another Debian release, beside this machine's own."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from rlalloc_testbed.required_release import require
from slurm_testbed import InvalidSpecError, ReleaseUnavailableError, Site, SiteSpec, releases, wait_until
from slurm_testbed.processes import site_processes
from slurm_testbed.requirements import search_path, slurm_version
from slurm_testbed.shares import mounts_below

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """#!/bin/sh
id -un
echo "gpus $CUDA_VISIBLE_DEVICES"
srun --label sh -c 'echo "step $CUDA_VISIBLE_DEVICES"'
srun --version
"""


@pytest.mark.slurm
def test_a_user_gets_two_gpus_on_slurm_of_trixie() -> None:
    """Slurm 24.11 runs a user's job with steps and keeps its account; the site's end leaves nothing."""
    require("trixie")
    with Site.start(SiteSpec(name=f"trixie-{os.getpid()}", nodes=1, release="trixie")) as site:
        assert slurm_version(site.environment()["PATH"]) == (24, 11)
        assert "SLURM_VERSION           = 24.11" in site.run(["scontrol", "show", "config"])
        job = site.sbatch(SCRIPT, user="llm-alice", options=["--gres=gpu:2"])
        site.wait_for_states([job], {"COMPLETED"}, timeout_s=120)
        output = (site.home("llm-alice") / f"slurm-{job}.out").read_text().splitlines()
        assert output[:3] == ["llm-alice", "gpus 0,1", "0: step 0,1"]
        assert "24.11" in output[3]

        def account() -> str:
            return site.run(["sacct", "-nXP", f"-j{job}", "-oState,User,AllocTRES"]).strip()

        line = wait_until(
            lambda: (said := account()).startswith("COMPLETED") and said, what="sacct to know the end", timeout_s=120
        )
        assert "|llm-alice|" in line
        assert "gres/gpu=2" in line
        site.restart_daemon("n1")
        site.wait_for_nodes(timeout_s=120)
        attached = Site.attach(site.name)
        assert attached.environment()["PATH"] == site.environment()["PATH"]
    assert not site.directory.exists()
    assert site_processes(site.directory) == []
    assert mounts_below(site.directory) == []
    assert mounts_below(releases.locate("trixie").directory) == []


def test_this_machines_own_slurm_is_not_touched() -> None:
    """Only the site's environment has the other release's programs."""
    assert str(releases.CACHE) not in search_path()


def test_a_release_that_the_archive_does_not_have() -> None:
    """The error names the release and says what is needed; nothing half-made is left."""
    with pytest.raises(ReleaseUnavailableError, match=r"(?s)Debian nosuchrelease .*apt-get install mmdebstrap"):
        releases.provide("nosuchrelease")
    if releases.CACHE.is_dir():
        assert not [entry.name for entry in releases.CACHE.iterdir() if entry.name.startswith(".nosuchrelease")]
        (releases.CACHE / "nosuchrelease.lock").unlink()


def test_two_that_want_a_release_at_once_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first and takes what it made."""
    made: list[str] = []
    both_are_here = threading.Barrier(2)

    def make(release: releases.Release) -> None:
        made.append(release.name)
        release.directory.mkdir()

    monkeypatch.setattr(releases, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(releases, "_make", make)
    found: list[releases.Release] = []

    def want() -> None:
        both_are_here.wait(timeout=60)
        found.append(releases.provide("trixie"))

    threads = [threading.Thread(target=want) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert made == ["trixie"]
    assert found == [releases.locate("trixie")] * 2


@pytest.mark.parametrize("name", ["", "../etc", "Trixie", "12"])
def test_names_that_are_no_release_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError, match="release"):
        SiteSpec(release=name)


def test_an_authentication_that_slurm_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="authentication 'none': munge or slurm"):
        SiteSpec(authentication="none")
