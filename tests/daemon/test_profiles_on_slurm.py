"""An installed profile on a real Slurm: the time limit that a job gets, and what ``explain`` says of it."""

import os
from collections.abc import Iterator

import pytest

from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.speed.profile_file import AppliesTo, write_profile
from rlalloc_cli.profile_install import install as install_profile
from rlalloc_testbed import Installation, install, start_site
from tests.core.profiles import on_cpus, profile

from .conftest import MOLDABLE

pytestmark = pytest.mark.slurm

HARDLY_SCALES = on_cpus(profile(0.1, AppliesTo(jobs=("train-7b*",)), counts=(1, 2, 4)))


@pytest.fixture
def enforcing() -> Iterator[Installation]:
    """A daemon with a profile, and a broken one beside it."""
    with start_site(f"profile-{os.getpid()}") as site:
        installation = install(site)
        folder = site.directory / "profiles"
        source = site.directory / "measured.yaml"
        write_profile(HARDLY_SCALES, source)
        install_profile(source, folder)
        (folder / "broken.yaml").write_text("format: rlalloc-profile-1\npoints: all\n")
        installation.write_config(speed={"profiles": str(folder)})
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        yield installation
        installation.stop_all()


def test_the_job_that_it_names_gets_a_shorter_limit_and_others_none_of_it(enforcing: Installation) -> None:
    named = enforcing.submit(MOLDABLE, "--job-name=train-7b-1")
    other = enforcing.submit(MOLDABLE, "--job-name=train-13b-1")
    decision, without = (enforcing.decision(job) for job in (named, other))
    for each in (decision, without):
        assert each.allocation is not None, each.reason
        assert each.slowdown is not None
    assert decision.allocation is not None
    assert decision.slowdown is not None
    assert without.slowdown is not None
    assert decision.slowdown.source == f"profile {HARDLY_SCALES.name}, which names it"
    assert decision.slowdown.allowed < slowdown_to_allow(decision.request, decision.allocation)
    assert without.slowdown.source == "published measurements of other models"

    enforcing.site.wait_for_states([named, other], {"COMPLETED"})
    minutes = decision.allocation.time_limit_s // 60
    assert f"TimeLimit=00:{minutes:02}:00" in enforcing.site.run(["scontrol", "show", "job", str(named)])
    (told,) = enforcing.explain(named)
    assert HARDLY_SCALES.name in told["decision"]["slowdown"]["source"]
    log = enforcing.log("rlallocd")
    assert "a profile is left out" in log
    assert "broken.yaml" in log
