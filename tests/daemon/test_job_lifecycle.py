"""The whole way of a job on a real slurmctld, as an ordinary user: sbatch, decision, allocation, outcome."""

import re
import signal
from datetime import datetime

import numpy as np
import pytest

from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.objective.weights import features_of
from rlalloc.observation import FEATURES, WEIGHT_FEATURES
from rlalloc_testbed import Installation
from slurm_testbed import wait_until

from .conftest import MOLDABLE

pytestmark = pytest.mark.slurm

ENDED = {"COMPLETED"}


def test_a_moldable_job_gets_what_was_decided_and_its_outcome_is_kept(rlalloc: Installation) -> None:
    job_id = rlalloc.submit(MOLDABLE)
    decision = rlalloc.decision(job_id)
    assert decision.reason == ""
    assert decision.policy_version is not None
    assert decision.allocation is not None
    assert decision.allocation.gpus in (1, 2)
    rlalloc.site.wait_for_states([job_id], ENDED)

    job = rlalloc.job(job_id)
    gpus, cpus = decision.allocation.gpus, decision.allocation.cpus
    assert f"gres/gpu={gpus}" in job["TRES"]
    assert f"cpu={cpus}," in job["TRES"]
    hours, minutes, _ = map(int, job["TimeLimit"].split(":"))
    assert hours * 3600 + minutes * 60 == decision.allocation.time_limit_s >= 600

    output = rlalloc.output(job_id)
    assert f"SLURM_GPUS_ON_NODE={gpus}\n" in output
    assert f"RLALLOC_GPUS={gpus}\n" in output
    assert f"SLURM_CPUS_PER_TASK={cpus}\n" in output
    steps = re.findall(r"step-task 0 of 1 gpus (\S+)", output)
    assert [len(devices.split(",")) for devices in steps] == [gpus]

    story = wait_until(
        lambda: (told := rlalloc.explain(job_id)) and told[0]["outcome"] and told, what="the outcome is kept"
    )
    assert story[0]["outcome"]["state"] == "COMPLETED"
    assert story[0]["outcome"]["gpus"] == gpus
    assert -5 <= story[0]["outcome"]["reward"] <= 0
    costs = story[0]["outcome"]["costs"]
    assert tuple(costs) == TERM_NAMES
    assert costs["jct"] >= costs["wait"] >= 0
    assert story[0]["applications"][0]["state"] == "begun"
    assert story[0]["decision"]["bounds"]["gpus"]["minimum_from"] == "script"


def test_another_objective_is_told_after_a_reload(rlalloc: Installation) -> None:
    def told(job_id: int) -> np.ndarray:
        observation = rlalloc.decision(job_id).observation
        assert observation is not None
        saw = dict(zip(FEATURES, np.frombuffer(observation, dtype="<f4").tolist(), strict=True))
        return np.array([saw[name] for name in WEIGHT_FEATURES])

    np.testing.assert_allclose(told(rlalloc.submit(MOLDABLE)), features_of(DEFAULT_WEIGHTS.array))
    rlalloc.write_config(objective={"weights": {"energy": 0.1}})
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: "configuration reloaded" in rlalloc.log("rlallocd"), what="the configuration is read again")
    after = told(rlalloc.submit(MOLDABLE))
    np.testing.assert_allclose(after, features_of(Weights(energy=0.1).array), rtol=1e-6)


def test_a_rigid_job_keeps_its_gpus(rlalloc: Installation) -> None:
    rigid = "\n".join(line for line in MOLDABLE.splitlines() if not line.startswith("#RLALLOC")) + "\n"
    job_id = rlalloc.submit(rigid)
    decision = rlalloc.decision(job_id)
    assert decision.allocation == decision.request
    rlalloc.site.wait_for_states([job_id], ENDED)
    assert "gres/gpu=4" in rlalloc.job(job_id)["TRES"]


def test_an_ordinary_job_is_not_touched(rlalloc: Installation) -> None:
    job_id = rlalloc.submit("#!/bin/sh\ntrue\n", "--gres=gpu:1", "--mem=100")
    rlalloc.site.wait_for_states([job_id], ENDED)
    assert rlalloc.job(job_id).get("AdminComment", "") == ""
    assert rlalloc.explain(job_id) == []


def test_shadow_decides_and_touches_nothing(rlalloc: Installation) -> None:
    rlalloc.write_config(mode="shadow")
    rlalloc.send("rlallocd", signal.SIGHUP)
    wait_until(lambda: " shadow " in (rlalloc.runtime / "intercept").read_text(), what="the plugin is told")
    blocker = rlalloc.submit("#!/bin/sh\nsleep 4\n", "--nodes=2", "--exclusive", "--mem=1000")
    job_id = rlalloc.submit(MOLDABLE)
    decision = rlalloc.decision(job_id)
    assert decision.mode == "shadow"
    assert decision.allocation is not None
    assert decision.allocation != decision.request
    rlalloc.site.wait_for_states([blocker, job_id], ENDED)
    job = rlalloc.job(job_id)
    assert "gres/gpu=4" in job["TRES"]
    assert job["EligibleTime"] == job["SubmitTime"]
    assert rlalloc.application(decision) is None


def test_a_wrong_directive_leaves_the_job_as_submitted_and_says_why(rlalloc: Installation) -> None:
    job_id = rlalloc.submit(MOLDABLE.replace("gpus=1-2", "gpus=8-2"))
    decision = rlalloc.decision(job_id)
    assert "must not be above" in decision.reason
    rlalloc.site.wait_for_states([job_id], ENDED)
    assert "gres/gpu=4" in rlalloc.job(job_id)["TRES"]


def test_a_jobs_age_counts_from_its_submission_and_nothing_of_its_priority_is_set(rlalloc: Installation) -> None:
    blocker = rlalloc.submit("#!/bin/sh\nsleep 30\n", "--nodes=2", "--exclusive", "--mem=1000")
    rlalloc.site.wait_for_states([blocker], {"RUNNING"})
    job_id = rlalloc.submit(MOLDABLE)
    rlalloc.decision(job_id)
    wait_until(lambda: rlalloc.job(job_id)["Reason"] in ("Resources", "Priority"), what="it waits for resources")
    wait_until(lambda: rlalloc.job(job_id)["AccrueTime"] != "Unknown", what="its age counts")
    job = rlalloc.job(job_id)
    submitted, accrued = (datetime.fromisoformat(job[field]) for field in ("SubmitTime", "AccrueTime"))
    assert (accrued - submitted).total_seconds() <= rlalloc.settings["grace_s"] / 2
    assert int(job["Priority"]) > 0
    assert job["Nice"] == "0"


def test_a_users_own_begin_time_is_kept(rlalloc: Installation) -> None:
    job_id = rlalloc.submit(MOLDABLE, "--begin=now+3600")
    before = rlalloc.job(job_id)["StartTime"]
    rlalloc.decision(job_id)
    wait_until(lambda: "gres/gpu=4" not in rlalloc.job(job_id)["TRES"], what="it is resized")
    job = rlalloc.job(job_id)
    assert job["StartTime"] == before
    assert job["JobState"] == "PENDING"
