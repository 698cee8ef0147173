"""``rlalloc simulate …`` as a person types it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rlalloc_simulator.commands.workload_commands import app, convert
from rlalloc_simulator.workloads import read_workload

TRACE = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-{day:02} {hour:02}:01:55,{60 * hour + 30}.0,{1 + hour % 4},1.0,11cb48\n"
    for day in range(2, 16)
    for hour in range(0, 24, 2)
)


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "philly.csv"
    path.write_text(TRACE)
    return path


def test_from_a_trace_to_a_workload_of_its_like(tmp_path: Path, trace: Path) -> None:
    """Convert, fit, generate and turn into scripts."""
    workload, model, drawn = tmp_path / "workload.jsonl", tmp_path / "model.json", tmp_path / "drawn.jsonl"
    result = simulate("convert", "--from", "philly-csv", trace, "-o", workload, "--moldable", 0, "--nodes", 3)
    assert result.exit_code == 0, result.output
    assert "168 of" in result.output
    header, jobs = read_workload(workload)
    assert header.cluster is not None
    assert (header.cluster.gpus, header.time_zero_s, len(jobs)) == (24, 1506902515.0, 168)
    assert all(job.parsed_directives.gpus is None for job in jobs)
    assert simulate("fit", workload, "-o", model).exit_code == 0
    options = ("--load", 0.8, "--nodes", 2, "--gpus-per-node", 4, "--hours", 12, "--seed", 3)
    result = simulate("generate", model, *options, "-o", drawn)
    assert result.exit_code == 0, result.output
    header, jobs = read_workload(drawn)
    assert header.cluster is not None
    assert header.cluster.gpus == 8
    assert "--load 0.8" in header.origin
    assert "offered load 0.8" in result.output
    again = tmp_path / "again.jsonl"
    simulate("generate", model, *options, "-o", again)
    assert again.read_bytes() == drawn.read_bytes()
    result = simulate("sbatch", drawn, "-o", tmp_path / "scripts", "--compress", 100)
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "scripts").glob("job-*.sh"))) == len(jobs)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("convert", "--from", "torque", "TRACE", "-o", "out"), "--from torque: write one of sacct, sacct-json, swf"),
        (("convert", "--from", "helios", "TRACE", "-o", "out"), "line 1: column job_id is missing"),
        (("fit", "TRACE", "-o", "out"), "line 1: not a header"),
        (("generate", "TRACE", "-o", "out"), "not a model of workloads"),
        (("generate", "nobody", "-o", "out"), "or one of kalos, philly"),
        (("sbatch", "TRACE", "-o", "out"), "line 1: not a header"),
    ],
)
def test_wrong_use(trace: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, and what to do instead on stderr."""
    places = {"TRACE": str(trace), "out": str(tmp_path / "out")}
    result = simulate(*(places.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_trace_without_jobs(tmp_path: Path) -> None:
    empty = tmp_path / "philly.csv"
    empty.write_text(TRACE.splitlines()[0])
    result = simulate("convert", "--from", "philly-csv", empty, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "no job in it has ended" in result.stderr


def test_documentation_shows_every_command() -> None:
    """Options: tests/docs/test_reference.py."""
    text = (Path(__file__).parents[3] / "docs" / "reference" / "workloads.md").read_text(encoding="utf-8")
    commands = {each.callback for each in app.registered_commands}
    here = {each.__name__ for each in commands if each is not None and each.__module__ == convert.__module__}
    assert here == {"convert", "fit", "generate", "sbatch"}  # rlalloc_cli adds others to the same group
    assert not [name for name in here if f"rlalloc simulate {name}" not in text]
