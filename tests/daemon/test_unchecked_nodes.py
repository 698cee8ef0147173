"""Nodes on which no check has seen the TaskProlog, and the jobs that stay as submitted because of them."""

import logging

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.config import Config, parse_config
from rlallocd.cluster.unchecked_nodes import NodesToAvoid, UncheckedNodes, require_checked, unchecked_nodes
from rlallocd.slurm import NodeRecord
from rlallocd.slurm.node_mark import TASK_PROLOG_VERSION, is_marked, with_mark
from rlallocd.submissions.request_sizes import Skipped
from tests.daemon.slurm_in_memory import NODE
from tests.daemon.test_request_sizes_and_tags import JOB

ENFORCE = Config(mode="enforce")
TRUSTED = parse_config("mode: enforce\nnodes: {task_prolog: trusted}", "test")


def node(name: str = "n1", extra: str = "", **changes: object) -> NodeRecord:
    return msgspec.structs.replace(NODE, name=name, extra=extra, booted_s=1000, **changes)


@pytest.mark.parametrize(
    ("extra", "booted_s", "marked"),
    [
        (f"rlalloc-task-prolog@1000/{TASK_PROLOG_VERSION}", 1000, True),
        (f"rack 7 rlalloc-task-prolog@2000/{TASK_PROLOG_VERSION} east", 1000, True),
        (f"rlalloc-task-prolog@999/{TASK_PROLOG_VERSION}", 1000, False),
        (f"rlalloc-task-prolog@2000/{TASK_PROLOG_VERSION}", 0, False),
        (f"not-rlalloc-task-prolog@2000/{TASK_PROLOG_VERSION}", 1000, False),
        (f"rlalloc-task-prolog@2000/{TASK_PROLOG_VERSION}x", 1000, False),
        (f"rlalloc-task-prolog@1000/{TASK_PROLOG_VERSION - 1}", 1000, False),
        ("", 1000, False),
    ],
)
def test_a_mark_holds_until_the_node_boots_again(extra: str, booted_s: int, marked: bool) -> None:
    assert is_marked(extra, booted_s) is marked


@given(st.lists(st.text('abc@-19{}:"', min_size=1), max_size=4), st.integers(1, 10**10), st.integers(1, 10**10))
def test_what_else_the_field_holds_stays(words: list[str], first_s: int, then_s: int) -> None:
    """However often the node is checked, there is one mark, and without it the field is as it was."""
    extra = with_mark(with_mark(" ".join(words), first_s), then_s)
    assert (is_marked(extra, then_s), is_marked(extra, then_s + 1)) == (True, False)
    assert with_mark(extra, None) == " ".join(words)


def test_nodes_that_take_no_job_of_ours_need_no_check() -> None:
    nodes = (
        node("n1"),
        node("n2", f"rlalloc-task-prolog@1001/{TASK_PROLOG_VERSION}"),
        node("n3", usable=False),
        node("n4", devices=()),
    )
    assert [each.name for each in unchecked_nodes(nodes, ENFORCE)] == ["n1"]
    assert unchecked_nodes(nodes, TRUSTED) == ()


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({"partition": "gpu"}, True),
        ({"partition": "debug,gpu"}, True),
        ({"partition": "debug"}, False),
        ({"partition": "gpu", "gpu_type": "v100"}, False),
        ({"partition": "gpu", "excluded_nodes": "n[1-2]"}, False),
        ({"partition": "gpu", "features": "new"}, False),
        ({"partition": "gpu", "features": "ib*2"}, True),
    ],
)
def test_a_job_that_may_start_on_one_stays_as_submitted(changes: dict[str, str], stays: bool) -> None:
    job = msgspec.structs.replace(JOB, **({"gpu_type": "", "features": "", "excluded_nodes": ""} | changes))
    nodes = NodesToAvoid((node("n1"), node("n2")))
    if stays:
        with pytest.raises(Skipped, match=r"on n\[1-2\], where") as refused:
            require_checked(job, nodes)
        assert refused.value.name == "task-prolog"
    else:
        require_checked(job, nodes)


def test_each_node_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also one that was checked and has booted; nothing is told, and nothing looked for, in shadow mode."""
    caplog.set_level(logging.WARNING)
    seen = node("n2", f"rlalloc-task-prolog@1001/{TASK_PROLOG_VERSION}")
    looked = UncheckedNodes()
    assert looked.among((node("n1"),), Config()).named_for(JOB) == ""
    assert caplog.messages == []
    for nodes in ((node("n1"), seen), (node("n1"), seen), (seen,), (node("n2"),)):
        looked.among(nodes, ENFORCE)
    assert ["doctor --nodes n1 as" in text for text in caplog.messages] == [True, False]
    assert "doctor --nodes n2 as" in caplog.messages[1]
