"""``rlalloc evaluate`` as a person types it, and what it keeps."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from rlalloc.config import DaemonSection
from rlalloc.errors import PolicyError
from rlalloc.heuristics import Ordered, largest
from rlalloc.policy.policies import Routing
from rlalloc.urgency import UrgencyRules
from rlalloc_agent.served_policy import shipped_folder
from rlalloc_cli.main import app, mount_trainer
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY
from rlalloc_simulator.workloads import Header, write_workload
from rlalloc_trainer.evaluation.compared_policies import BASELINES, policy_to_compare
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_trainer.evaluation.scenario_runs import AGAIN, SETTINGS, Extent, WorkloadKey
from rlalloc_trainer.evaluation.scenarios import scenario_of_file
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


def test_from_policies_and_a_workload_to_tables_and_a_figure(workload: Path, tmp_path: Path) -> None:
    """A learned policy and the baselines, in two settings; the second time nothing is run again."""
    told: tuple[object, ...] = ("--workload", workload, "--only", "site", "--knowledge", "limits,truth")
    told += ("--replicates", 2, "--workers", 1)
    result = evaluate("shipped", *told, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for words in ("site, limits, sizes only", "sizes and urgency: mean JCT over", "shipped, never worse", "afs-l"):
        assert words in result.output
    content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert len(content["workloads"]) == 2 * 2
    assert {each["knowledge"] for each in content["workloads"]} == {"limits", "truth"}
    names = {each["policy"] for each in content["workloads"][0]["results"]}
    assert names == {"shipped", "as-requested", AGAIN, *BASELINES}
    for each in content["workloads"][0]["results"]:
        often = each["policy"] in ("shipped", "repaired", "as-requested", AGAIN)
        assert each["figures"]["jobs"] == (5 * 2 if often else 5)
    assert (tmp_path / "out" / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / runs_folder()).iterdir()}
    assert len(kept) == 4 * 2 * len(names)
    assert evaluate("shipped", *told, "-o", tmp_path / "out").output == result.output
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_policies_are_judged_by_when_a_site_decides(workload: Path, tmp_path: Path) -> None:
    """Late unless it is said otherwise, after the daemon's poll; at most so many weeks."""
    told = ("--workload", workload, "--only", "site", "--knowledge", "limits", "--settings", "sizes", "--seeds", 1)
    settings = {}
    for folder, more in (("late", ()), ("later", ("--late", 30)), ("arrival", ("--on-arrival",))):
        told_more = (*told, *more, "--no-baselines", "--workers", 1, "-o", tmp_path / folder)
        assert evaluate("largest", *told_more).exit_code == 0
        content = json.loads((tmp_path / folder / "evaluation.json").read_text())
        assert len(content["workloads"]) == 1
        settings[folder] = content["settings"]["late_after_s"]
    assert settings == {"late": DaemonSection().poll_s, "later": 30.0, "arrival": None}


def test_without_baselines_only_the_reference_runs_too(workload: Path, tmp_path: Path) -> None:
    told = ("--workload", workload, "--only", "site", "--knowledge", "limits", "--settings", "sizes", "--workers", 1)
    assert evaluate("largest", "--no-baselines", *told, "-o", tmp_path).exit_code == 0
    content = json.loads((tmp_path / "evaluation.json").read_text())
    assert [each["policy"] for each in content["workloads"][0]["results"]] == ["largest", "as-requested", AGAIN]


def runs_folder() -> str:
    from rlalloc_trainer.evaluation.evaluate import KEPT

    return KEPT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody",), "no policy 'nobody'"),
        (("price-ef", "--only", "moon"), "--only moon: write one of modest site; modest, large jobs"),
        (("price-ef", "--knowledge", "all"), "--knowledge all: write one of limits, history, model"),
        (("price-ef", "--only", "10% resizable", "--knowledge", "truth"), "no scenario is run with that"),
        (("price-ef", "--pollux", "absent"), "absent: no table in it"),
        (("price-ef", "--settings", "sizes,magic"), "--settings magic: write one or more of sizes, urgency, requeue"),
        (("price-ef", "--weeks", "train"), "--weeks train: write test or validation"),
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
    one = WorkloadKey(scenario, 0, 1.0)
    for same in (replace(scenario, path=Path("elsewhere")), replace(scenario, weeks=(0,))):
        assert replace(one, scenario=same).digest == one.digest
    others = (
        one,
        replace(one, load=1.2),
        replace(one, week=1),
        replace(one, knowledge="truth"),
        replace(one, scenario=replace(scenario, digest="other")),
    )
    assert len({each.digest for each in others}) == len(others)


def test_only_what_is_evaluated_is_held_to_the_gain_that_rlallocd_wants() -> None:
    """Baselines get each size that they name; as requested runs again with other moves of the submissions."""
    extent = Extent(often=("mine", AGAIN), by_gain=("mine",), replicates=4)
    rules = SETTINGS["sizes"]
    assert extent.settings_of("mine", rules) == msgspec.structs.replace(rules, replicates=4)
    assert extent.settings_of("afs-l", rules) == msgspec.structs.replace(rules, as_answered=True)
    assert extent.settings_of(AGAIN, rules) == msgspec.structs.replace(rules, as_answered=True, replicates=4, first=4)


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
