"""Every form of submission, changed in every way, on a real site of each version of Slurm: and the table of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlalloc_testbed import USER, required_release, start_site
from rlallocd.submissions.request_sizes import FORMS_SKIPPED

from .document import committed_table, has_table, table_of, write_table
from .form_checks import problems_of
from .matrix import AS_SUBMITTED, FEATURE, FORMS, SITE_CPUS, SITE_GPUS, SITE_MEM_MIB, SKIPPED
from .runs import Matrix, allocated

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]
RELEASES = (None, "trixie", *os.environ.get("RLALLOC_TEST_RELEASES", "").split())
DOCUMENT = Path(__file__).parents[3] / "docs" / "explanation" / "submission-forms.md"


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release or "this-debian")
def matrix(request: pytest.FixtureRequest) -> Iterator[Matrix]:
    """All cells on a site of one version, run to their ends."""
    release: str | None = request.param
    if release is not None:
        required_release.require(release)
    name = f"forms-{release or 'own'}-{os.getpid()}"
    shape = {"gpus_per_node": SITE_GPUS, "cpus_per_node": SITE_CPUS, "mem_mib_per_node": SITE_MEM_MIB}
    with start_site(name, nodes=8, release=release, **shape) as site, pytest.MonkeyPatch.context() as monkeypatch:
        nodes = "NodeName=" + ",".join(site.nodes)
        site.run(["scontrol", "update", nodes, f"AvailableFeatures={FEATURE}", f"ActiveFeatures={FEATURE}"])
        reservation = ("ReservationName=forms", f"Nodes={site.nodes[-1]}", f"Users={USER}")
        site.run(["scontrol", "create", "reservation", *reservation, "StartTime=now", "Duration=3:00:00"])
        yield Matrix(site, monkeypatch)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_gets_what_was_decided_and_sees_it_everywhere(matrix: Matrix, name: str) -> None:
    """AllocTRES, steps and variables of each change, after a requeue, and when the request was given back."""
    form = FORMS[name]
    control = matrix.cells[name, AS_SUBMITTED]
    assert control.state == "COMPLETED"
    if control.skipped:
        assert control.skipped in FORMS_SKIPPED
        return
    if not form.spread and not form.whole_nodes:
        assert problems_of(control, form, control) == ()
    found = {
        cell.change: problems
        for (form_name, change), cell in matrix.cells.items()
        if form_name == name and change != AS_SUBMITTED and (problems := problems_of(cell, form, control))
    }
    assert found == {}


@pytest.mark.parametrize("name", SKIPPED)
def test_a_form_that_is_not_resized_is_skipped_by_name_and_runs(matrix: Matrix, name: str) -> None:
    cell = matrix.cells[name, AS_SUBMITTED]
    assert cell.skipped == SKIPPED[name][1]
    assert cell.state == "COMPLETED"
    assert allocated(cell)[0] >= 1


def test_a_job_that_was_not_resized_keeps_its_binding(matrix: Matrix) -> None:
    """Though its tasks do not come out even with its GPUs: the TaskProlog used to take such a binding away."""
    (run,) = matrix.cells["--overcommit", AS_SUBMITTED].runs
    assert run.batch["RLALLOC_GPUS"] == "2"
    assert {"per_task:1", "gres/gpu:per_task:1"} & {run.batch.get(f"SLURM_{name}_BIND") for name in ("GPU", "TRES")}


def test_a_held_job_was_changed_and_stayed_held(matrix: Matrix) -> None:
    assert matrix.held
    assert all(matrix.held)


def test_the_document_shows_what_was_seen(matrix: Matrix) -> None:
    """WRITE_FORMS=1 writes it anew."""
    version = matrix.capabilities.release
    if not has_table(DOCUMENT, version):
        pytest.skip(f"{DOCUMENT.name} has no table of {version}")
    seen = table_of(matrix.cells)
    if os.environ.get("WRITE_FORMS"):
        write_table(DOCUMENT, version, seen)
    assert committed_table(DOCUMENT, version) == seen, f"{DOCUMENT.name} is old: run with WRITE_FORMS=1"
