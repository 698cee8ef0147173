"""Every kind of limit, asked of slurmctld: rlalloc never says yes where slurmctld says no.

With RLALLOC_TEST_LIMITS_ON=trixie, say, slurmctld is that of another Debian release.
"""

import os
from collections.abc import Iterator

import pytest

from rlalloc_testbed.required_release import require
from slurm_testbed import Site, SiteSpec

from .kinds import Level
from .limit_oracle import QUESTIONS, Answer, Question, ask

pytestmark = pytest.mark.slurm

Answers = dict[tuple[str, Level], Answer]


@pytest.fixture(scope="session")
def answers() -> Iterator[Answers]:
    release = os.environ.get("RLALLOC_TEST_LIMITS_ON")
    if release:
        require(release)
    spec = SiteSpec(
        name=f"limits-{os.getpid()}",
        nodes=4,
        gpus_per_node=192,
        cpus_per_node=256,
        enforce="associations,limits,qos,safe",
        release=release,
        extra_slurm_conf={"AccountingStorageTRES": "gres/gpu,gres/gpu:a100"},
    )
    with Site.start(spec) as site:
        yield ask(site)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: f"{each.kind.name}, {each.level}")
def test_never_a_yes_where_slurmctld_says_no(answers: Answers, question: Question) -> None:
    answer = answers[question.key]
    stricter = question.level in question.kind.stricter
    if question.level == "beyond" and not stricter:
        assert answer.slurm, "the limit does not bind: the test's own setting is wrong"
    if answer.slurm:
        assert answer.ours, f"slurmctld: {answer.slurm}"
        assert not stricter, "slurmctld says no as well: it does not belong to the list"
    elif stricter:
        assert answer.ours, "stricter on purpose, says the list, but it is not"
    else:
        assert not answer.ours
