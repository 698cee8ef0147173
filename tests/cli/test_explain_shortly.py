"""What ``rlalloc explain JOBID`` says in a few lines."""

import msgspec
import pytest

from rlalloc.store.job_story import Chapter
from rlalloc_cli.explain_shortly import print_shortly
from tests.core.test_store import APPLICATION, DECISION, OUTCOME, SIZE


@pytest.mark.parametrize(("gpus", "in_vain"), [(4, True), (2, False), (3, False)])
def test_a_size_that_slurmctld_forgot_is_told(
    gpus: int, capsys: pytest.CaptureFixture[str], *, in_vain: bool
) -> None:
    """Four GPUs were asked for, and two decided."""
    begun = msgspec.structs.replace(APPLICATION, state="begun", intended=DECISION.allocation or SIZE)
    outcome = msgspec.structs.replace(OUTCOME, gpus=gpus)
    print_shortly([Chapter(DECISION, (begun,), outcome, DECISION.id, {}, {})])
    said = " ".join(capsys.readouterr().out.split())
    assert f"on {gpus} GPUs" in said
    assert ("slurmctld had forgotten the decided size" in said) == in_vain
