"""How often rlallocd reads limits and their use."""

from collections import Counter
from collections.abc import Set

import msgspec

from rlallocd.slurm import Holder, SiteLimits
from rlallocd.slurm.limit_reader import LimitReader
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm_readings import SlurmReadings
from tests.daemon.test_cluster_views import job

from .test_limit_text import ACCOUNT, ASSOCIATION, QOS, SACCTMGR

ALICE = 1001
OF_A_USER = " 1001={MaxJobsPU=N(0) MaxSubmitJobsPU=N(0) MaxTRESPU=cpu=N(4),gres/gpu=6(1)}"
TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=0;user_begin=0"


class Site(Commands):
    """A site that reports what a user holds in a QOS only after the user's first job there."""

    def __init__(self) -> None:
        super().__init__(timeout_s=1)
        self.users = ""

    def run(self, *words: str) -> str:
        if words[0] == "sacctmgr":
            return SACCTMGR
        if words[2] == "assoc_mgr":
            qos = QOS.replace(OF_A_USER, self.users)
            return "\n".join([ACCOUNT, ASSOCIATION, qos, qos.replace("QOS=high", "QOS=normal")])
        return ""


class SlurmWithLimits:
    """What SlurmReadings asks for limits."""

    def __init__(self, site: Site) -> None:
        self.calls: Counter[str] = Counter()
        self._reader = LimitReader(site)

    def limits(self, holders: Set[Holder], *, licenses: bool) -> SiteLimits:
        return self._reader.read(holders, enforced=True, licenses=licenses)


def test_a_users_first_job_in_a_qos_has_its_limits_read_though_they_were_read_just_before() -> None:
    site = Site()
    readings = SlurmReadings(SlurmWithLimits(site), Counter(), lambda: None)  # type: ignore[arg-type]
    first = job(1, "PENDING", account="llm", qos="normal", admin_comment=TAG)
    limits = readings.limits([first], ())
    assert limits is not None
    assert limits.qos["high"].per_user == {}
    site.users = OF_A_USER
    limits = readings.limits([first, msgspec.structs.replace(first, job_id=2, qos="high")], ())
    assert limits is not None
    assert limits.qos["high"].per_user[ALICE].limits == {"gres/gpu": 6}
