"""Plug-ins that fail: each error names who it was."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rlalloc import plugins
from rlalloc.errors import PluginError, PolicyError
from rlalloc.heuristics.named import described, policy_named
from rlalloc.objective import Consequences, Resources, Setting, costs_of

from .test_heuristics import cluster, job
from .test_objective import JOB

SETTING = Setting(Resources(gpus=8, cpus=64, mem_mib=1000))
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution ``site`` of one module, with these entry points."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(entry_points: str, code: str = "") -> None:
        module = f"site_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{module}.py").write_text(code)
        folder = tmp_path / "site-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: site\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(entry_points.replace("site:", f"{module}:"))
        plugins._entry_points.cache_clear()
        importlib.invalidate_caches()

    yield make
    plugins._entry_points.cache_clear()


def test_an_expert_is_known_by_its_name(install: Install) -> None:
    install(
        "[rlalloc.experts]\nquarter = site:quarter\n",
        "from rlalloc.job import Shares\n"
        'def quarter(job, view):\n    "A quarter."\n    return Shares(0.25, 1.0, 0.5)\n',
    )
    shares = policy_named("quarter")(job(), cluster())
    assert (shares.gpu, shares.cpu, shares.mem) == (0.25, 1.0, 0.5)
    assert policy_named("quarter+shortest-first")(job(), cluster()).gpu == 0.25
    assert described()["quarter"][0] == "A quarter."
    assert "site 1.0" in described()["quarter"][1]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def expert(job, view):\n    return 1 / 0", "ZeroDivisionError.*fix it"),
        ("def expert(job, view):\n    return 0.5", "return Shares"),
        ("from rlalloc.job import Shares\ndef expert(job, view):\n    return Shares(2.0, 0.0, 0.0)", "return Shares"),
        (
            "from rlalloc.job import Shares\ndef expert(job, view):\n    return Shares(float('nan'), 0.0, 0.0)",
            "return Shares",
        ),
    ],
)
def test_an_expert_that_answers_wrong_is_named(install: Install, code: str, says: str) -> None:
    install("[rlalloc.experts]\nodd = site:expert\n", code)
    with pytest.raises(PluginError, match=rf"'odd' \(.*of site 1.0\).*{says}"):
        policy_named("odd")(job(), cluster())


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import nothing_of_the_kind", "ModuleNotFoundError"),
        ("expert = 3", "has to name a function"),
        ("", "AttributeError"),
    ],
)
def test_one_that_cannot_be_had_is_named(install: Install, code: str, says: str) -> None:
    install("[rlalloc.experts]\nodd = site:expert\n", code)
    with pytest.raises(PluginError, match=says):
        policy_named("odd")
    assert says in described()["odd"][0]
    with pytest.raises(PolicyError, match=r"price-ef.*odd"):
        policy_named("even")


def test_our_names_are_ours(install: Install) -> None:
    install("[rlalloc.experts]\nprice-ef = site:expert\n", "")
    with pytest.raises(PluginError, match=r"site 1\.0.*another one"):
        policy_named("price-ef")


@pytest.mark.parametrize("answer", ["[1.0, 2.0]", "[-1.0]", "[float('inf')]", "'much'", "1 / 0"])
def test_a_reward_that_answers_wrong_is_named(install: Install, answer: str) -> None:
    install("[rlalloc.rewards]\nodd = site:term\n", f"def term(of, at):\n    return {answer}\n")
    with pytest.raises(PluginError, match=r"'odd' \(.*of site 1.0\)"):
        costs_of(Consequences.of_one(**JOB), SETTING, ("jct", "odd"))


def test_a_reward_stands_beside_ours(install: Install) -> None:
    install("[rlalloc.rewards]\nnights = site:term\n", "def term(of, at):\n    return of.wait_s / 2\n")
    costs = costs_of(Consequences.of_one(**JOB), SETTING, ("jct", "nights"))
    np.testing.assert_array_equal(costs, [[JOB["jct_s"] + JOB["others_s"], JOB["wait_s"] / 2]])
