"""``rlalloc evaluate`` as a person types it, and what it keeps."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from rlalloc.errors import PolicyError
from rlalloc.heuristics import largest
from rlalloc_agent.served_policy import shipped_folder
from rlalloc_cli.main import app, mount_trainer
from rlalloc_simulator.progress import part_of, silent
from rlalloc_simulator.workloads import Header, write_workload
from rlalloc_trainer.evaluation import runner as runs
from rlalloc_trainer.evaluation.compared_policies import Contender, contender_named
from rlalloc_trainer.evaluation.runner import Results, WorkloadKey
from rlalloc_trainer.evaluation.scenarios import scenario_of_file
from rlalloc_trainer.evaluation.site_choice import CHOICES
from rlalloc_trainer.evaluation.workload_figures import WorkloadFigures
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
    for words in ("Targets for chosen:price-by-order", "Who is served", "capped-price"):
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


def test_an_interrupted_run_goes_on_where_it_was(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third run breaks; afterwards only what is missing is run, and a cut-off file is run again."""
    plain_run, ran = runs.run, [0]

    def breaking(*arguments: object) -> WorkloadFigures:
        ran[0] += 1
        if ran[0] == 3:
            raise KeyboardInterrupt
        return plain_run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "run", breaking)
    scenarios = [scenario_of_file("site", workload)]
    contenders = [Contender("largest"), Contender("as-requested")]

    def results() -> list[tuple[WorkloadKey, Results]]:
        return list(runs.run_all(scenarios, (1.0,), contenders, ("sizes",), tmp_path / "kept", map, silent))

    with pytest.raises(KeyboardInterrupt):
        results()
    whole = results()
    assert ran[0] == 3 + 2
    cut = next((tmp_path / "kept").iterdir())
    cut.write_bytes(cut.read_bytes()[:20])
    assert results() == whole
    assert ran[0] == 3 + 2 + 1


def test_what_a_result_is_kept_under(workload: Path, tmp_path: Path) -> None:
    """Another policy, setting, load, week, file or program: another result. Where the file lies does not matter."""
    scenario = scenario_of_file("site", workload)
    task = runs.Task(runs.WorkloadKey(scenario, 0, 0, 1.0), (), (), tmp_path, "code")
    one = Contender("largest")

    def name(task: runs.Task, contender: Contender = one, setting: runs.Setting = "sizes") -> str:
        return runs._name_of(task, contender, setting)

    replace = msgspec.structs.replace
    moved = replace(task, workload=replace(task.workload, scenario=replace(scenario, path=Path("elsewhere"))))
    assert name(moved) == name(task)
    others = [
        name(task),
        name(task, Contender("smallest")),
        name(task, contender_named("shipped", None)),
        name(task, setting="urgency"),
        name(replace(task, workload=replace(task.workload, load=1.2))),
        name(replace(task, workload=replace(task.workload, week=1))),
        name(replace(task, workload=replace(task.workload, scenario=replace(scenario, digest="other")))),
        name(replace(task, code="other")),
    ]
    assert len(set(others)) == len(others)


def test_a_policy_by_each_of_its_names(tmp_path: Path) -> None:
    with shipped_folder() as folder:
        assert contender_named(str(folder), None).digest == contender_named("shipped", None).digest
    assert contender_named("price-ef+shortest-first", None).weights is None
    assert contender_named("largest", None).policy() is largest
    with pytest.raises(PolicyError, match="or shipped, the folder of a policy"):
        contender_named("v000001", None)
