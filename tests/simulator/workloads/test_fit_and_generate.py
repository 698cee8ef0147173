"""Workloads drawn from a fitted model have the same rates, rhythms, sizes, durations, users and ends.

Tolerances stand beside each figure; the workloads have some 4,500 jobs, so that shares are good to 0.02 (three
standard errors of a share of a half) and means of heavy tails to a tenth.
"""

import math
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc_simulator.workloads import Header, NodeGroup, WorkloadError, WorkloadJob, write_workload
from rlalloc_simulator.workloads.assumptions import Assumptions
from rlalloc_simulator.workloads.completion import complete
from rlalloc_simulator.workloads.generator import MONDAY_S, GeneratorSettings, generate, hourly_rates
from rlalloc_simulator.workloads.model_fitting import fit_arrivals, fit_model
from rlalloc_simulator.workloads.trace_job import TraceJob
from rlalloc_simulator.workloads.workload_model import (
    PROBABILITIES,
    Arrivals,
    Quantiles,
    WorkloadModel,
    load_model,
    save_model,
    shipped_models,
)
from rlalloc_simulator.workloads.workload_summary import summarise

WEEKS = 6
HOURS = WEEKS * 168
HOUR_OF_DAY = tuple(1 + 0.6 * math.sin(2 * math.pi * (hour - 8) / 24) for hour in range(24))
DAY_OF_WEEK = tuple(weight * 7 / 6 for weight in (1, 1, 1, 1, 1, 0.5, 0.5))
SIZES = {1: (0.6, 600.0), 4: (0.25, 3600.0), 16: (0.15, 10800.0)}
"""GPUs: share of jobs, median run time [s]."""
CLUSTER = NodeGroup("node", 16, 8, 96, 768_000)


@pytest.fixture(scope="module")
def source() -> list[WorkloadJob]:
    """Six weeks with a known rhythm; accounts of 3:1; a user's next job is as large as the last one at 1 in 2."""
    generator = np.random.default_rng(5)
    hours = np.arange(HOURS)
    counts = generator.poisson(4.5 * np.array(HOUR_OF_DAY)[hours % 24] * np.array(DAY_OF_WEEK)[hours // 24 % 7])
    last: dict[str, int] = {}
    trace = []
    for hour, count in enumerate(counts):
        for second in np.sort(generator.uniform(0, 3600, count)):
            user = f"u{int(generator.zipf(1.8)) % 50}"
            if user not in last or generator.random() < 0.5:
                last[user] = int(generator.choice(list(SIZES), p=[share for share, _ in SIZES.values()]))
            trace.append(
                TraceJob(
                    key="",
                    submit_s=MONDAY_S + hour * 3600 + float(second),
                    gpus=last[user],
                    elapsed_s=SIZES[last[user]][1] * math.exp(generator.normal(0, 1.2)),
                    state=("COMPLETED", "FAILED", "CANCELLED")[generator.choice(3, p=(0.6, 0.3, 0.1))],
                    user=user,
                    account="big" if generator.random() < 0.75 else "small",
                )
            )
    return list(complete(trace, Assumptions(), 0)[1])


@pytest.fixture(scope="module")
def model(source: list[WorkloadJob]) -> WorkloadModel:
    return fit_model(Header(origin="made by hand", time_zero_s=MONDAY_S), source, "pytest")


@pytest.fixture(scope="module")
def drawn(model: WorkloadModel) -> list[WorkloadJob]:
    return list(generate(model, GeneratorSettings(cluster=CLUSTER, hours=float(HOURS), seed=1)))


def test_the_fit_finds_the_rhythm(model: WorkloadModel) -> None:
    """Each hour's weight to 0.2, each day's to 0.12: about 190 and 650 jobs each."""
    assert model.arrivals.jobs_per_hour == pytest.approx(4.5, rel=0.05)
    assert model.arrivals.hour_of_day == pytest.approx(HOUR_OF_DAY, abs=0.2)
    assert model.arrivals.day_of_week == pytest.approx(DAY_OF_WEEK, abs=0.12)
    assert model.arrivals.burst_log_deviation < 0.2  # there were none


def test_a_drawn_workload_has_the_same_rhythm(model: WorkloadModel, drawn: list[WorkloadJob]) -> None:
    again, _ = fit_arrivals(np.array([MONDAY_S + job.submit_s for job in drawn]))
    assert again.jobs_per_hour == pytest.approx(model.arrivals.jobs_per_hour, rel=0.05)
    assert again.hour_of_day == pytest.approx(model.arrivals.hour_of_day, abs=0.25)
    assert again.day_of_week == pytest.approx(model.arrivals.day_of_week, abs=0.15)


def test_a_drawn_workload_has_the_same_moments(source: list[WorkloadJob], drawn: list[WorkloadJob]) -> None:
    given_, made = summarise(source), summarise(drawn)
    assert made.jobs == pytest.approx(given_.jobs, rel=0.05)
    assert made.mean_gpus == pytest.approx(given_.mean_gpus, rel=0.1)
    assert made.gpu_hours / made.jobs == pytest.approx(given_.gpu_hours / given_.jobs, rel=0.15)
    assert made.held_s[:2] == pytest.approx(given_.held_s[:2], rel=0.1)
    assert made.held_s[2:] == pytest.approx(given_.held_s[2:], rel=0.15)
    assert made.ends == pytest.approx(given_.ends, abs=0.02)
    assert made.cpu_fraction == pytest.approx(given_.cpu_fraction, rel=0.05)
    assert made.mem_fraction == pytest.approx(given_.mem_fraction, rel=0.05)
    assert made.limit_used == pytest.approx(given_.limit_used, rel=0.05)
    assert made.moldable == pytest.approx(given_.moldable, abs=0.02)


def test_a_drawn_workload_has_the_same_sizes(source: list[WorkloadJob], drawn: list[WorkloadJob]) -> None:
    """Shares to 0.05 (sizes stick to a few busy users), medians of some 500 jobs each to a fifth."""
    sizes = Counter(job.request.gpus for job in drawn)
    assert {gpus: count / len(drawn) for gpus, count in sizes.items()} == pytest.approx(
        {gpus: share for gpus, (share, _) in SIZES.items()}, abs=0.05
    )
    for gpus in SIZES:
        given_, made = (
            np.median([job.held_s for job in jobs if job.request.gpus == gpus and job.end.state == "COMPLETED"])
            for jobs in (source, drawn)
        )
        assert made == pytest.approx(given_, rel=0.2)


def test_a_drawn_workload_has_the_same_users(model: WorkloadModel, drawn: list[WorkloadJob]) -> None:
    """The busiest account and its busiest user to 0.03; sizes stick to users."""
    accounts = Counter(job.account for job in drawn)
    assert accounts["a1"] / len(drawn) == pytest.approx(0.75, abs=0.03)
    users = Counter(job.user for job in drawn if job.account == "a1")
    assert users["a1-u1"] / accounts["a1"] == pytest.approx(model.accounts[0].users[0], abs=0.03)
    assert [user for user, _ in users.most_common(2)] == ["a1-u1", "a1-u2"]
    again = fit_model(Header(time_zero_s=MONDAY_S), drawn, "pytest")
    assert again.size_repeat == pytest.approx(model.size_repeat, abs=0.05)
    assert model.size_repeat > 0.2


def test_bursts_are_found_and_made() -> None:
    """Deviation to 0.15, memory to 0.15, over a year of hours."""
    arrivals = Arrivals(10.0, (1.0,) * 24, (1.0,) * 7, burst_log_deviation=0.9, burst_memory=0.7)
    generator = np.random.default_rng(2)
    counts = generator.poisson(hourly_rates(arrivals, 8760.0, generator))
    times = MONDAY_S + np.repeat(np.arange(8760) * 3600.0, counts) + 1800
    again, hours = fit_arrivals(times)
    assert hours == pytest.approx(8760, rel=0.02)
    assert again.jobs_per_hour == pytest.approx(10.0, rel=0.15)
    assert again.burst_log_deviation == pytest.approx(0.9, abs=0.15)
    assert again.burst_memory == pytest.approx(0.7, abs=0.15)


def test_without_a_clock_there_is_no_rhythm(source: list[WorkloadJob]) -> None:
    model = fit_model(Header(), source, "pytest")
    assert set(model.arrivals.hour_of_day) == set(model.arrivals.day_of_week) == {1.0}
    assert model.arrivals.burst_log_deviation > 0.2  # what varies counts as bursts


@pytest.mark.parametrize("load", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("name", ["philly", "kalos"])
def test_a_workload_meets_its_load(name: str, load: float) -> None:
    """To 3%, whatever the seed."""
    for seed in range(2):
        plan = GeneratorSettings(cluster=msgspec.structs.replace(CLUSTER, count=32), hours=24.0, load=load, seed=seed)
        jobs = list(generate(load_model(name), plan))
        assert summarise(jobs).load(plan.gpus, plan.hours) == pytest.approx(load, rel=0.03)
        assert all(0 <= job.submit_s <= 24 * 3600 for job in jobs)
        assert max(job.request.gpus for job in jobs) <= plan.gpus // 2


def test_a_load_keeps_the_rhythm(model: WorkloadModel) -> None:
    """More jobs by day than by night, as the model says: 20 of 24 hours would be 0.83 without a rhythm."""
    jobs = list(generate(model, GeneratorSettings(cluster=CLUSTER, hours=float(HOURS), load=0.3, seed=4)))
    by_hour = Counter(int(job.submit_s // 3600) % 24 for job in jobs)
    busy, quiet = sum(by_hour[hour] for hour in range(12, 16)), sum(by_hour[hour] for hour in range(4))
    expected = sum(model.arrivals.hour_of_day[12:16]) / sum(model.arrivals.hour_of_day[:4])
    assert busy / quiet == pytest.approx(expected, rel=0.3)


@given(seed=st.integers(0, 2**32), load=st.none() | st.floats(0.1, 2.0), nodes=st.integers(1, 40))
@settings(max_examples=8)
def test_the_same_seed_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, seed: int, load: float | None, nodes: int
) -> None:
    folder = tmp_path_factory.mktemp("workloads")
    plan = GeneratorSettings(msgspec.structs.replace(CLUSTER, count=nodes), hours=3.0, load=load, seed=seed)
    for name in ("one", "two"):
        write_workload(folder / name, Header(cluster=plan.description), generate(load_model("philly"), plan))
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()


def test_another_seed_gives_other_jobs(model: WorkloadModel) -> None:
    one, two = (list(generate(model, GeneratorSettings(CLUSTER, hours=24.0, seed=seed))) for seed in (1, 2))
    assert one != two


def test_requests_fit_the_nodes(drawn: list[WorkloadJob]) -> None:
    for job in drawn:
        assert job.request.gpus_per_node <= 8
        assert job.request.cpus_per_node <= 96
        assert job.request.mem_mib_per_node <= 768_000
        assert job.bounds(CLUSTER.shape).gpu_counts


def test_a_model_survives_its_file(model: WorkloadModel, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save_model(model, path)
    assert load_model(str(path)) == model


def test_a_model_changed_by_hand_is_checked(model: WorkloadModel, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save_model(model, path)
    path.write_text(path.read_text().replace('"size_repeat": 0', '"size_repeat": 7'))
    with pytest.raises(WorkloadError, match="size_repeat"):
        load_model(str(path))
    with pytest.raises(WorkloadError, match="or one of kalos, philly"):
        load_model(str(tmp_path / "none.json"))


def test_shipped_models_name_source_and_command() -> None:
    assert shipped_models() == ("kalos", "philly")
    for name in shipped_models():
        shipped = load_model(name)
        assert "CC-BY-4.0" in shipped.origin
        assert "rlalloc simulate convert --from" in shipped.origin
        assert shipped.command.startswith("rlalloc simulate fit")
        assert "request.mem_mib_per_node" in shipped.modelled  # neither trace knows of memory


def test_the_shipped_philly_is_like_philly() -> None:
    """Figures of its weeks 40, 42, 45, 48 (philly.csv): 93.6% on one GPU, half below 1,273 s, 90% below 11,104 s."""
    jobs = list(generate(load_model("philly"), GeneratorSettings(CLUSTER, hours=24.0 * 7, seed=3)))
    assert sum(job.request.gpus == 1 for job in jobs) / len(jobs) == pytest.approx(0.936, abs=0.015)
    held = [job.held_s for job in jobs]
    assert np.median(held) == pytest.approx(1273, rel=0.1)
    assert np.quantile(held, 0.9) == pytest.approx(11104, rel=0.15)


def test_no_gpus_no_model() -> None:
    trace = [TraceJob(key="", submit_s=0.0, gpus=0, elapsed_s=1.0)]
    with pytest.raises(WorkloadError, match="no job of the workload asks for whole GPUs"):
        fit_model(Header(), complete(trace, Assumptions(), 0)[1], "pytest")


def test_no_size_fits() -> None:
    tiny = msgspec.structs.replace(CLUSTER, count=1)
    model = load_model("philly")
    large = msgspec.structs.replace(model, groups=model.groups[-1:])
    with pytest.raises(WorkloadError, match=r"smallest jobs .* have 16 GPUs.*cluster's 8: give it more nodes"):
        list(generate(large, GeneratorSettings(tiny, hours=1.0)))


def test_no_load_from_jobs_that_are_all_too_long() -> None:
    with pytest.raises(WorkloadError, match="in a row hold no GPUs, or more than 25% of the load"):
        list(generate(load_model("philly"), GeneratorSettings(CLUSTER, hours=1e-7, load=0.01)))


@given(st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=60))
@settings(max_examples=40)
def test_quantiles_stay_inside_the_sample(sample: list[float]) -> None:
    """To four digits; and they ascend."""
    quantiles = Quantiles.of(sample, 1e-3)
    values = [quantiles.at(probability) for probability in np.linspace(0, 1, 50)]
    assert values == sorted(values)
    assert values[0] >= min(sample) * 0.999
    assert values[-1] <= max(sample) * 1.001
    for probability, value in zip(PROBABILITIES, quantiles.values, strict=True):
        assert quantiles.at(probability) == pytest.approx(value)
