"""``rlalloc evaluate`` as a person types it, and what it keeps."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from rlalloc.errors import PolicyError
from rlalloc.heuristics import Ordered, largest
from rlalloc.policies import Routing
from rlalloc.urgency import UrgencyRules
from rlalloc_agent.served_policy import shipped_folder
from rlalloc_cli.main import app, mount_trainer
from rlalloc_simulator.progress import part_of
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY
from rlalloc_simulator.workloads import Header, write_workload
from rlalloc_trainer.evaluation.compared_policies import policy_to_compare
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_trainer.evaluation.scenario_runs import WorkloadKey
from rlalloc_trainer.evaluation.scenarios import scenario_of_file
from rlalloc_trainer.evaluation.site_choice import CHOICES
from tests.trainer.evaluation.example_workloads import CLUSTER, workload_job

mount_trainer()


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Two days of five jobs each, of two users."""
    path = tmp_path / "site.jsonl"
    jobs = [
        workload_job(number, 86_400.0 * (number > 5) + 900.0 * number, gpus=4, run_s=3000.0, user="ab"[number % 2])
        for number in range(1, 11)
    ]
    write_workload(path, Header(cluster=CLUSTER), jobs)
    return path


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *(str(argument) for argument in arguments)])


def test_from_policies_and_a_workload_to_a_table_and_a_figure(workload: Path, tmp_path: Path) -> None:
    """A learned policy, a heuristic and the baseline, in every setting; the second time nothing is run again."""
    told = ("--workload", workload, "--only", "site", "--loads", "0.8,1.5", "--workers", 1, "-o", tmp_path / "out")
    result = evaluate("shipped", "price-ef", *told)
    assert result.exit_code == 0, result.output
    for words in ("sizes only", "sizes and urgency", "requeue an hour", "Targets for shipped", "price-ef"):
        assert words in result.output
    content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert len(content["workloads"]) == 4
    assert len(content["workloads"][0]["results"]) == 3 * 3
    assert all(each["figures"]["jobs"] == 5 for each in content["workloads"][0]["results"])
    assert (tmp_path / "out" / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / runs_folder()).iterdir()}
    assert len(kept) == 4 * 9
    assert evaluate("shipped", "price-ef", *told).output == result.output
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_what_each_site_would_choose(workload: Path, tmp_path: Path) -> None:
    """The second day is served what was best on the first; nothing more is run than what may be served."""
    told = ("--workload", workload, "--only", "site", "--loads", "1.5", "--settings", "sizes", "--workers", 1)
    result = evaluate("chosen:price-by-order", *told, "-o", tmp_path, "as-requested")
    assert result.exit_code == 0, result.output
    for words in ("Targets for chosen:price-by-order", "Policy that each site chooses", "capped-price"):
        assert words in result.output
    first, second = json.loads((tmp_path / "evaluation.json").read_text())["workloads"]
    jct_s = [{each["policy"]: each["figures"]["jct_s"] for each in day["results"]} for day in (first, second)]
    assert set(jct_s[0]) == {"chosen:price-by-order", "price-by-order", "as-requested", *CHOICES}
    assert jct_s[0]["chosen:price-by-order"] == jct_s[0]["price-by-order"]
    assert jct_s[1]["chosen:price-by-order"] in {jct_s[1][name] for name in CHOICES}


def test_who_chooses_first_has_one_bar_for_both() -> None:
    told: list[tuple[str, float]] = []
    for begin, end in ((0.0, 0.4), (0.4, 1.0)):
        tell = part_of(lambda what, done: told.append((what, done)), begin, end)
        tell("half", 0.5)
        tell("all", 1.0)
    assert [what for what, _ in told] == ["half", "all"] * 2
    assert [done for _, done in told] == pytest.approx([0.2, 0.4, 0.7, 1.0])


def runs_folder() -> str:
    from rlalloc_trainer.evaluation.evaluate import KEPT

    return KEPT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), "no policy 'nobody'"),
        (("price-ef", "--only", "moon"), "--only moon: write one of Philly model, Kalos model, shifted cluster"),
        (("price-ef", "--settings", "sizes,magic"), "--settings magic: write one or more of sizes, urgency, requeue"),
        (("price-ef", "--weeks", "train"), "--weeks train: write test or validation"),
        (("chosen:price-ef", "--weeks", "validation"), "chosen: chooses by these; judge it on test weeks"),
        (("price-ef", "chosen:shipped"), "chosen: goes in front of the first policy only"),
        (("price-ef", "--philly", "absent.csv"), "absent.csv: No such file or directory"),
        (("price-ef", "--loads", "much"), "--loads much"),
    ],
)
def test_wrong_use_says_what_to_write(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    result = evaluate(*arguments, "-o", tmp_path)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_what_a_workload_is_known_by(workload: Path) -> None:
    """Another load, week or file: another workload. Where the file lies, and its other weeks, do not matter."""
    scenario = scenario_of_file("site", workload)
    replace = msgspec.structs.replace
    one = WorkloadKey(scenario, 0, 0, 1.0)
    for same in (replace(scenario, path=Path("elsewhere")), replace(scenario, weeks=(0,))):
        assert replace(one, scenario=same).digest == one.digest
    others = (
        one,
        replace(one, load=1.2),
        replace(one, week=1),
        replace(one, scenario=replace(scenario, digest="other")),
    )
    assert len({each.digest for each in others}) == len(others)


def test_a_policy_by_each_of_its_names() -> None:
    shipped = policy_to_compare("shipped", None)
    with shipped_folder() as folder:
        assert policy_to_compare(str(folder), None).digest == shipped.digest
    assert isinstance(shipped, LearnedPolicy)
    assert shipped.digest != msgspec.structs.replace(shipped, routing=Routing(at_least=0.3)).digest
    assert policy_to_compare("largest", None).policy(UrgencyRules()) is largest
    assert isinstance(policy_to_compare("largest", None).policy(SIMULATED_URGENCY), Ordered)
    with pytest.raises(PolicyError, match="or shipped, the folder of a policy"):
        policy_to_compare("v000001", None)
