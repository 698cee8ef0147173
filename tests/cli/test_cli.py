"""What a person types: exit codes, explanations, and one job's story."""

import getpass
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import typer

from rlalloc.config import Config, load_config
from rlalloc.devices import Device, NodeDevices
from rlalloc.heuristics import BASELINE_NAME, BASELINE_OF_0_1, SERVED_HEURISTICS
from rlalloc.job import ChosenType, Shares
from rlalloc.observation import FEATURES, SCHEMA_ID
from rlalloc.policy.policies import ACTOR_FILE, CURRENT, PolicyStore
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc.store import Store
from rlalloc.store.migrations.versions.r0003_feature_names import NAMES_OF_0_1
from rlalloc_agent.actor import Actor
from rlalloc_cli.check import report_on
from rlalloc_cli.report.report_command import write_page
from rlalloc_cli.site_nodes import SiteSlurm, largest_of
from rlalloc_cli.status import print_status
from rlalloc_cli.terminal import escape_what_cannot_be_printed, make_console
from rlallocd.submissions.intercept import intercept_text
from tests.agent.running_server import Server, add_version
from tests.cli.rlalloc_command import run_rlalloc
from tests.core.test_policies import MANIFEST
from tests.core.test_store import APPLICATION, DECISION, OUTCOME
from tests.core.test_store_migrations import make_newer, run_sql
from tests.daemon.slurm_in_memory import NODE, gpus

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "rlalloc.yaml"
    path.write_text(
        f"store: {{url: 'sqlite:///{tmp_path}/store.sqlite'}}\n"
        f"policy: {{directory: {tmp_path}/policies}}\n"
        f"agent: {{endpoint: 'ipc://{tmp_path}/agent.sock', deadline_s: 0.1}}\n"
    )
    return path


@pytest.fixture
def run(config: Path) -> Run:
    """No Slurm answers, also on a machine that has one."""

    def run(*words: str, sudo_user: str = "", columns: int = 150) -> subprocess.CompletedProcess[str]:
        sudo = {"SUDO_USER": sudo_user} if sudo_user else {}
        known = {"RLALLOC_CONFIG": str(config), "COLUMNS": str(columns), "PATH": "/usr/bin:/bin"}
        return run_rlalloc(*words, environment=known | sudo | {"SLURM_CONF": "/dev/null"})

    return run


def test_a_good_configuration_is_fine(run: Run) -> None:
    done = run("config", "check")
    assert (done.returncode, done.stderr) == (0, "")


def test_words_of_the_shipped_lists_that_a_list_lacks_are_named(run: Run, config: Path) -> None:
    """After an upgrade, a list that a site spelled out lacks the new words."""
    assert "lacks" not in run("config", "check", "--offline").stdout
    config.write_text(config.read_text() + "scripts: {memory: [--mem-per-gpu, --mem, --our-mem], accumulation: []}\n")
    done = run("config", "check", "--offline", columns=400)
    assert done.returncode == 0
    assert f"{config}: scripts.memory lacks words of the shipped list: --mem-per-cpu\n" in done.stdout
    assert "scripts.accumulation lacks words of the shipped list: --gradient-accumulation-steps, " in done.stdout
    assert done.stdout.count("lacks") == 2


def test_a_wrong_one_is_exit_2_with_the_key(run: Run, config: Path) -> None:
    config.write_text("grace: 7\n")
    done = run("config", "check")
    assert done.returncode == 2
    assert "grace: unknown key; did you mean 'grace_s'?" in done.stderr


def test_show_prints_what_is_in_force(run: Run, config: Path, tmp_path: Path) -> None:
    shown = run("config", "show").stdout
    assert f"sqlite:///{tmp_path}/store.sqlite" in shown
    assert "grace_s: 60" in shown
    config.write_text(shown)
    assert run("config", "check").returncode == 0


def test_a_job_we_never_saw_is_exit_1(run: Run, tmp_path: Path) -> None:
    Store(f"sqlite:///{tmp_path}/store.sqlite").close()
    done = run("explain", "99")
    assert done.returncode == 1
    assert "no decision for job 99" in done.stderr


def test_the_story_of_a_job_has_every_chapter(run: Run, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    answers = dict.fromkeys(SERVED_HEURISTICS, Shares(0.0, 1.0, 1.0))
    answers |= {BASELINE_NAME: Shares(1.0, 1.0, 1.0), "equal-share+smallest-area-first": Shares(0.6, 1.0, 1.0)}
    seen = np.zeros(len(FEATURES), dtype="<f4").tobytes()
    store.add_decisions(
        [msgspec.structs.replace(DECISION, observation=seen, observation_schema=SCHEMA_ID, alternatives=answers)]
    )
    (application,) = store.journal([APPLICATION])
    store.set_applications([application], "begun", 1002, "let go with the decided size")
    store.add_outcomes([OUTCOME])
    store.close()

    story = run("explain", "7", "--verbose").stdout
    for words in (
        "1 node x 4 GPUs",  # the request
        "1 (from the script) to 8 (from the script); workable: 1, 2, 4, 8",
        "0:04:24 as requested, 80% between 0:01:40 and 0:08:20; from 20 runs of this user",
        "queued_gpus 0",  # the observation
        "price-ef 1, price-by-order 1, capped-price 1",
        "marginal-gain 1, efficiency-adaptive 1, equal-share 4, known-gain 8",
        "GPU 0.100, CPU 0.200, memory 0.300, urgency 0.400; log-probability -1.500",
        "+12, decays to 0 within 0:17:36 of waiting",
        "v000001",
        "1 node x 2 GPUs",  # the allocation
        "1.60 times the run time, the time limit allows for 1.96; from profile gpt-25m, which names it",
        "begun",
        "COMPLETED",
        "reward -0.500",
    ):
        assert words in story, words

    short = run("explain", "7").stdout
    assert len(short.splitlines()) <= 11
    for words in (
        "asked    1 node x 4 GPUs",
        "given    1 node x 2 GPUs",
        "why      policy v000001 at ",
        "GPUs could be 1 to 8 (from the script)",
        "state    in force since",
        "outcome  COMPLETED, began",
        "while it ran, others could use 2 GPUs",
    ):
        assert words in short, words
    assert "queued_gpus" not in short

    (told,) = json.loads(run("explain", "7", "--json").stdout)
    assert told["decision"]["shares"] == msgspec.to_builtins(Shares(0.1, 0.2, 0.3, 0.4))
    assert set(told["decision"]["observation"]) == set(FEATURES)
    assert told["gpus_of_heuristics"]["equal-share+smallest-area-first"] == 4
    assert told["outcome"]["state"] == "COMPLETED"


@pytest.mark.parametrize("option", [(), ("--verbose",)])
def test_what_sockets_allow_is_explained(run: Run, tmp_path: Path, option: tuple[str, ...]) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    assert DECISION.bounds is not None
    bounds = msgspec.structs.replace(DECISION.bounds, sockets="only nodes with at least 4 sockets: 1 of 5")
    store.add_decisions([msgspec.structs.replace(DECISION, bounds=bounds)])
    store.close()
    assert "only nodes with at least 4 sockets: 1 of 5" in run("explain", "7", *option).stdout


def test_a_type_that_was_chosen_is_explained(run: Run, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    assert DECISION.allocation is not None
    chosen = ChosenType("a100", "n[2-5]", "", 1.86, 1.13)
    size = msgspec.structs.replace(DECISION.allocation, gpu_type=chosen)
    store.add_decisions([msgspec.structs.replace(DECISION, allocation=size)])
    store.close()
    told = " ".join(run("explain", "7").stdout.split())
    assert "GPUs of any type" in told
    assert "given 1 node x 2 a100 GPUs" in told
    assert "a100, because jobs run 1.9 times as fast there as on the GPUs that Slurm would give it" in told
    assert "19 times in 20 at least 1.1 times" in told
    assert "because jobs run 1.9 times as fast" in " ".join(run("explain", "7", "--verbose").stdout.split())


def test_what_rlalloc_0_1_stored_is_explained(run: Run, tmp_path: Path) -> None:
    """It kept the heuristics' answers among the features; those are shown as what they are."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    seen = dict.fromkeys(NAMES_OF_0_1, 0.0) | {"queued_gpus": 0.5, f"{BASELINE_OF_0_1}:gpu_share": 1.0}
    observation = np.array(list(seen.values()), dtype="<f4").tobytes()
    store.add_decisions(
        [
            msgspec.structs.replace(
                DECISION,
                observation=observation,
                observation_schema=7,
                alternatives=None,
                run_time=None,
                slowdown=None,
            )
        ]
    )
    store.close()
    story = run("explain", "7", "--verbose").stdout
    assert "queued_gpus 0.5" in story
    assert "0:04:24 as requested: 0.44 of its time limit, all that is known" in story
    assert (
        "price-ef 1, capped-price 1, marginal-gain 1, efficiency-adaptive 1, equal-share 1, price-by-order 8" in story
    )


def test_a_job_decided_again_says_which_decision_its_outcome_belongs_to(run: Run, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    first = msgspec.structs.replace(DECISION, observation=None)
    again = msgspec.structs.replace(first, id="d2", decided_s=DECISION.decided_s + 60, predicted_gain=0.4)
    store.add_decisions([first, again])
    journal = store.journal([APPLICATION, msgspec.structs.replace(APPLICATION, decision_id="d2", begins=False)])
    store.set_applications(journal, "begun", 1002, "applied")
    store.add_outcomes([msgspec.structs.replace(OUTCOME, decision_id="d2")])
    store.close()

    story = run("explain", "7", "--verbose").stdout
    assert "see decision d2, which is in force" in story
    assert "predicted to save 40% of the job's cost" in story
    one, other = json.loads(run("explain", "7", "--json").stdout)
    assert one["outcome"] is None
    assert other["outcome"]["state"] == "COMPLETED"
    assert (one["in_force"], other["in_force"]) == ("d2", "d2")


def test_a_job_that_is_left_alone_says_who_asked_and_what_it_has(run: Run, tmp_path: Path) -> None:
    """Its decision was taken back; the last one is the note that rlallocd left."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    note = msgspec.structs.replace(
        DECISION, id="d2", decided_s=DECISION.decided_s + 60, allocation=None, reason="off: bob (uid 7) asked: mine"
    )
    store.add_decisions([DECISION, note])
    journal = store.journal([APPLICATION])
    store.set_applications(journal, "restoring", 1002, "bob (uid 7) asked")
    assert "has now     its request, once rlallocd has restored it" in run("explain", "7").stdout
    store.set_applications(journal, "restored", 1002, "bob (uid 7) asked")
    store.close()
    told = run("explain", "7").stdout
    assert "\ngiven" not in told
    assert "decided     1 node x 2 GPUs" in told
    assert re.search(r"^left alone  2026-\S+ \S+: bob \(uid 7\) asked: mine *$", told, re.MULTILINE)
    assert f"has now     its request: {DECISION.request.describe()}" in told


def test_status_says_that_the_agent_is_dead(run: Run) -> None:
    done = run("status")
    assert done.returncode == 1
    assert "cannot reach the agent within" in done.stdout


def test_a_policy_in_use_that_cannot_be_served_is_shown(run: Run, config: Path, tmp_path: Path) -> None:
    """As after an upgrade that removed a feature: the shipped policy answers instead."""
    config.write_text(config.read_text().replace("deadline_s: 0.1", "deadline_s: 10"))
    policies = PolicyStore(tmp_path / "policies")
    version = add_version(policies, Actor(("moon_phase", *DEFAULT_INPUTS)))
    (policies.directory / CURRENT).symlink_to(version)
    with Server(tmp_path) as server:
        shown = " ".join(run("status").stdout.split())
        assert f"serves {server.policy.version} for" in shown
    assert f"policy {version} cannot be served: " in shown
    assert "reads moon_phase, which this version of rlalloc does not have" in shown
    listed = " ".join(run("policy", "list").stdout.replace("│", " ").split())
    assert f"{version} yes cannot be served: " in listed


def test_before_the_daemons_first_start_nothing_is_made(run: Run, tmp_path: Path) -> None:
    """A file that root made would be one that the daemon cannot write to."""
    shown, explained = run("status"), run("explain", "7")
    assert (shown.returncode, explained.returncode) == (1, 1)
    assert "no store at" in shown.stdout
    assert "rlallocd creates it when it first starts" in explained.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rlalloc.yaml"]


def test_a_store_of_a_later_rlalloc_is_said_in_one_line(run: Run, config: Path, tmp_path: Path) -> None:
    make_newer(f"sqlite:///{tmp_path}/store.sqlite")
    config.write_text(config.read_text() + f"runtime_directory: {tmp_path}\n")
    daemon = [str(Path(sys.executable).parent / "rlallocd"), "--config", str(config)]
    for done, status in (
        (run("status"), 1),
        (run("explain", "7"), 1),
        (run("train", "run", "--config", str(config)), 1),
        (subprocess.run(daemon, capture_output=True, text=True, check=False), 2),  # systemd does not start it again
    ):
        assert done.returncode == status
        assert "revision 9000, made by rlalloc 7.5.0" in " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in done.stderr


def test_the_daemon_says_in_one_line_that_the_store_is_of_a_later_rlalloc(config: Path, tmp_path: Path) -> None:
    make_newer(f"sqlite:///{tmp_path}/store.sqlite")
    config.write_text(f"{config.read_text()}runtime_directory: {tmp_path}\n")
    daemon = [str(Path(sys.executable).parent / "rlallocd"), "--config", str(config)]
    with subprocess.Popen(daemon, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "revision 9000" in line)
        assert "made by rlalloc 7.5.0" in said
        process.terminate()
        assert "Traceback" not in process.stderr.read()


def test_status_shows_the_rows_that_it_can_read(run: Run, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.add_decisions([DECISION, msgspec.structs.replace(DECISION, id="d2", job_id=8)])
    store.close()
    run_sql(f"sqlite:///{tmp_path}/store.sqlite", "UPDATE decisions SET shares = '[NaN, 1, 1]' WHERE id = 'd1'")
    shown, explained = run("status"), run("explain", "7")
    assert re.search("^8 ", shown.stdout, re.MULTILINE)
    assert "a row that this rlalloc cannot read: decisions, id d1: shares" in shown.stderr
    assert explained.returncode == 1
    assert "decisions, id d1" in explained.stderr


def test_policies_are_listed_and_only_versions_promoted(run: Run) -> None:
    assert "shipped with rlalloc" in run("policy", "list").stdout
    done = run("policy", "promote", "v000001")
    assert done.returncode == 1
    assert "no policy at" in done.stderr


def test_a_refused_version_needs_force_and_a_reason(run: Run, tmp_path: Path) -> None:
    policies = PolicyStore(tmp_path / "policies")
    evaluation: dict[str, object] = {"promote": False, "reason": "it is [/worse]"}
    policies.add({ACTOR_FILE: b"x"}, msgspec.structs.replace(MANIFEST, evaluation=evaluation))
    refused = run("policy", "promote", "v000001")
    assert (refused.returncode, policies.current()) == (1, None)
    assert "the gate refused v000001: it is [/worse]" in refused.stderr
    assert run("policy", "promote", "v000001", "--force").returncode == 2
    done = run("policy", "promote", "v000001", "--force", "--reason", "a [/test]", sudo_user="ada")
    assert (done.returncode, done.stdout) == (0, "v000001 is in use instead of shipped\n")
    assert policies.current() == "v000001"
    shown = run("policy", "list").stdout
    who = "ada" if os.geteuid() == 0 else getpass.getuser()
    assert f"by {who}, forced: a [/test]" in " ".join(shown.replace("│", " ").split())


def test_the_way_back_is_rollback_or_the_shipped_policy(run: Run, tmp_path: Path) -> None:
    policies = PolicyStore(tmp_path / "policies")
    for content in (b"one", b"two"):
        policies.promote(policies.add({ACTOR_FILE: content}, MANIFEST))
    assert run("policy", "rollback", "--reason", "slow").stdout == "v000001 is in use instead of v000002\n"
    assert run("policy", "promote", "shipped").stdout == "shipped is in use instead of v000001\n"
    assert policies.current() is None
    assert run("policy", "rollback").returncode == 0
    assert policies.current() == "v000001"
    shutil.rmtree(policies.path("v000001"))
    shown = " ".join(run("policy", "list").stdout.replace("│", " ").split())
    assert "v000001 yes cannot be served" in shown


def test_wrong_use_is_exit_2(run: Run) -> None:
    assert run("explain", "seven").returncode == 2
    assert run("frobnicate").returncode == 2


def test_users_text_is_no_markup(run: Run, tmp_path: Path) -> None:
    """A job named ``[/nonsense]`` ended `explain` in a traceback."""
    hostile = "[/nonsense] :skull:"
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    decision = msgspec.structs.replace(DECISION, job_name=hostile, user=hostile, allocation=None, reason=hostile)
    store.add_decisions([decision])
    store.close()
    explained, status = run("explain", "7"), run("status")
    assert (explained.returncode, status.stderr) == (0, "")
    assert f"job 7 '{hostile}'" in explained.stdout
    assert f"of {hostile}" in explained.stdout
    assert f"by {hostile}" in run("explain", "7", "--verbose").stdout
    assert "[/nonsens" in status.stdout  # cut to its column, and not taken for markup


def test_status_shows_whole_job_ids_beside_long_values(run: Run, tmp_path: Path) -> None:
    """On 80 columns, whatever the reason of a skipped job says and however long names are."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    reason = "directive: #RLALLOC gpus=4-1: the first number must not be above the second, however long it is"
    long = msgspec.structs.replace(DECISION, job_id=12_345_678, user="u" * 40, allocation=None, reason=reason)
    store.add_decisions(
        [
            long,
            msgspec.structs.replace(long, id="d2", reason="several-gpu-options: GPUs stated in more than one way"),
            msgspec.structs.replace(DECISION, id="d3", job_class="finetune", policy_version="shipped-12"),
        ]
    )
    store.close()
    latest = run("status", columns=80).stdout.partition("latest decisions")[2]
    assert "12345678" in latest
    assert "4, skipped: directive" in latest
    assert "several-gpu-options" in latest
    assert " finetune enforce 4 -> 2, shipped-12" in latest
    assert max(map(len, latest.splitlines())) <= 80


def test_status_shows_the_rest_where_the_store_fails(run: Run, tmp_path: Path) -> None:
    """The person on call looks there first: what runs, and what is wrong with the store, on one screen."""
    (tmp_path / "store.sqlite").write_text("this is no database, nor was it ever one " * 100)
    done = run("status")
    assert done.returncode == 1
    assert {"mode", "plugin", "daemon", "agent", "policy", "trainer", "store"} <= {
        line.partition(" ")[0] for line in done.stdout.splitlines()
    }
    assert re.search(r"store +FAIL .* file is not a database", done.stdout)
    assert done.stderr == ""


def test_status_says_that_the_disk_is_full(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while nothing has to be written yet."""
    Store(f"sqlite:///{tmp_path}/store.sqlite").close()
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    assert not print_status(load_config(config))
    assert "FAIL 0.0 GiB free" in capsys.readouterr().out
    monkeypatch.undo()
    print_status(load_config(config))
    assert "0.0 GiB free" not in capsys.readouterr().out


@pytest.mark.parametrize("job_id", ["7_2", "7_[0-3%2]", " 7 "])
def test_a_task_of_an_array_is_explained_by_its_array(run: Run, tmp_path: Path, job_id: str) -> None:
    """As squeue prints it; an array is decided as one job, under the id that sbatch printed."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.add_decisions([DECISION])
    store.close()
    done = run("explain", job_id, "--json")
    assert json.loads(done.stdout)[0]["decision"]["job_id"] == 7


@pytest.mark.parametrize("job_id", ["seven", "7_", "_2", "7+1", "-7"])
def test_what_is_no_job_id_is_wrong_use(run: Run, job_id: str) -> None:
    assert run("explain", job_id).returncode == 2


SACCT_WITHOUT_SLURMDBD = """#!/bin/sh
cat >&2 <<E
sacct: Jobs Eligible in the time window from Fri Nov 27 00:00:00 2026 to Fri Nov 27 16:07:20 2026
sacct: accounting_storage/slurmdbd: init: Accounting storage SLURMDBD plugin loaded
sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:localhost:6819: \
Connection refused
sacct: error: Sending PersistInit msg: Connection refused
sacct: error: Problem talking to the database: Connection refused
E
exit 1
"""
"""What 22.05's prints, since it is asked to be verbose."""


def test_a_report_without_slurmdbd_says_so_in_short(config: Path, tmp_path: Path) -> None:
    """It printed all that sacct had said, in one line."""
    Store(f"sqlite:///{tmp_path}/store.sqlite").close()
    sacct = tmp_path / "sacct"
    sacct.write_text(SACCT_WITHOUT_SLURMDBD)
    sacct.chmod(0o755)
    known = {"RLALLOC_CONFIG": str(config), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = run_rlalloc("report", environment=known)
    said = "rlalloc: sacct: Problem talking to the database: Connection refused; is slurmdbd up?\n"
    assert (done.returncode, done.stderr, done.stdout) == (1, said, "")


def test_check_shows_how_a_script_is_read(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH --gpus-per-node=a100:4 -c 16 --mem=100G\n"
        "torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE x.py "
        "--model gpt2 --seq-length 1024 --global-batch-size 64 --micro-batch-size 4\n"
    )
    done = run("check", str(script))
    assert done.returncode == 0
    assert "takes its size from Slurm or the machine: nproc-per-node=$SLURM_GPUS_ON_NODE" in done.stdout
    assert "workable: 2, 4, 8" in done.stdout
    assert "1 node: 4 GPUs, 1 task, 16 CPUs and 100 GiB a node" in done.stdout
    assert "4 (from the request) to 4 (from the request)" in done.stdout  # CPUs per GPU
    assert "25600 (from the request) to 25600 (from the request)" in done.stdout  # MiB per GPU
    assert (
        "8 GPUs a node: assumed, since Slurm shows no nodes here; set the real number with --gpus-per-node"
        in done.stdout
    )
    smaller = run("check", str(script), "--gpus-per-node", "4").stdout
    assert "4 GPUs a node: as --gpus-per-node says" in smaller
    script.write_text("#!/bin/sh\n#RLALLOC gpu=4 mem-per-gpu=lots\n#RLALLOC gpus=8-1\ntorchrun x.py\n")
    wrong = run("check", str(script))
    said = wrong.stderr.split()
    assert (wrong.returncode, "write key=value" in wrong.stderr) == (1, True)
    assert all(word in said for word in ("'gpu=4':", "mem-per-gpu:", "gpus=8-1:"))
    script.write_text("#!/bin/sh\n#SBATCH --gpus-per-node=8\n#RLALLOC gpus=2-8 mem-per-gpu=lots\ntorchrun x.py\n")
    partly = run("check", str(script))
    assert (partly.returncode, "mem-per-gpu: 'lots'" in partly.stderr) == (1, True)
    assert "workable: 2, 4, 8" in partly.stdout
    assert "without the wrong parts" in partly.stdout
    endless = run("check", "/dev/zero")
    assert (endless.returncode, "no batch script" in endless.stderr) == (2, True)
    script.write_text("#!/bin/sh\n#SBATCH --gpus-per-node=4\n#RLALLOC gpus=3-3\ntorchrun x.py\n")
    assert "bounds: GPUs" in run("check", str(script)).stdout
    assert run("check", str(tmp_path / "none.sh")).returncode == 2


def test_a_script_is_checked_on_the_largest_node_of_its_partition() -> None:
    small = msgspec.structs.replace(NODE, name="n1", partitions=("small", "all"), devices=gpus("a100", 4))
    large = msgspec.structs.replace(NODE, name="n2", partitions=("large", "all"), devices=gpus("a100", 6))
    nodes = (small, large, msgspec.structs.replace(NODE, name="n3", partitions=("cpu",), devices=()))
    for lines, count, source in (
        ("--nodes=1\n -p small", 4, "the largest of partition small"),
        ("--partition=large", 6, "the largest of partition large"),
        ("--parsable --nodes=1", 6, "the largest of the site"),
        (
            "--partition=cpu",
            8,
            "assumed, since partition cpu has no such node; set the real number with --gpus-per-node",
        ),
    ):
        found = largest_of(nodes, lines)
        assert (found.gpus, found.source) == (count, source)


@pytest.mark.parametrize(
    ("options", "words", "counts"),
    [
        ("--mem=64G -c8", "gpus=1-8", (1, 2, 4, 8)),
        ("--mem=64G -c64", "gpus=1-8", (1, 2, 4)),
        ("--mem=400G -c8", "gpus=1-8", (1, 2, 4)),
        ("--mem=0", "gpus=1-8", (1, 2, 4, 8)),
        ("--mem=64G -c8", "gpus=1-8 mem-per-gpu=100G-200G", (1, 2, 4)),
        ("--mem=64G -c8", "gpus=8 mem-per-gpu=100G-200G", (4,)),
    ],
    ids=["enough", "CPUs", "memory", "all memory", "declared", "declared too much"],
)
def test_a_script_is_checked_with_what_a_node_has(
    monkeypatch: pytest.MonkeyPatch, options: str, words: str, counts: tuple[int, ...]
) -> None:
    """``rlallocd`` leaves the same counts out; ``rlalloc check`` once showed them."""
    nodes = (NODE, msgspec.structs.replace(NODE, devices=gpus("a100", 4), cpus=128))
    monkeypatch.setattr(SiteSlurm, "nodes", lambda _: nodes)
    script = f"#!/bin/sh\n#SBATCH --gres=gpu:4 {options}\n#RLALLOC {words}\ntorchrun train.py\n"
    report = report_on(script.encode(), Config(), None, None)
    assert report.bounds is not None
    assert report.bounds.gpu_counts == counts
    assert bool(report.mistakes) == (counts == (4,))


def test_slices_and_shards_are_checked_as_such() -> None:
    sliced = (*gpus("a100", 4), *gpus("1g.10gb", 28), NodeDevices(Device("shard", "a100"), 16, per_gpu=4))
    nodes = (msgspec.structs.replace(NODE, devices=sliced),)
    for device, text in (
        (Device("gpu"), "4 GPUs a node: the largest of the site"),
        (Device("mig", "1g.10gb"), "28 slices 1g.10gb a node: the largest of the site"),
        (Device("shard"), "4 shards a node: the largest of the site"),
    ):
        assert largest_of(nodes, "", device).describe() == text


LLAMA = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=8
#RLALLOC gpus=1-8
torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE sft.py --model_name meta-llama/Llama-2-7b-hf --bf16 --fsdp full_shard \\
    --gradient_checkpointing --max_seq_length 2048
"""


@pytest.mark.parametrize(
    ("line", "options", "workable"),
    [
        (
            "#SBATCH --nodes=1 --gpus-per-node=a100:8",
            (),
            "2 (from the model) to 8 (from the script); workable: 2, 4",
        ),
        ("#SBATCH --gres=gpu:a100_40:8", (), "4 (from the model) to 8 (from the script); workable: 4, 8"),
        ("#SBATCH --gpus-per-node=8", ("--gpu", "a100-40"), "4 (from the model)"),
        ("#SBATCH --gpus-per-node=8", (), "1 (from the script) to 8"),
    ],
)
def test_check_knows_what_the_model_needs(
    run: Run, tmp_path: Path, line: str, options: tuple[str, ...], workable: str
) -> None:
    """Llama 2 7B, full fine-tuning with FSDP: the counts that have too little memory are left out."""
    script = tmp_path / "job.sh"
    script.write_text(LLAMA.replace("#SBATCH --nodes=1 --gpus-per-node=8", line))
    done = run("check", str(script), *options)
    assert done.returncode == 0
    assert workable in " ".join(done.stdout.split())
    assert ("name the type of GPU with --gpu" in done.stdout) == ("from the model" not in workable)


def test_check_refuses_a_type_of_gpu_without_a_known_memory(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(LLAMA)
    done = run("check", str(script), "--gpu", "abacus")
    assert (done.returncode, "gpu_memory" in done.stderr) == (2, True)


def test_status_tells_by_which_table_the_plugin_reads(run: Run, config: Path, tmp_path: Path) -> None:
    """The intercept file is the daemon's; after an edit of the configuration it is another than the file's."""
    config.write_text(config.read_text() + f"runtime_directory: {tmp_path}\n")
    assert "plugin  FAIL the intercept file is missing" in run("status").stdout
    loaded = load_config(config)
    (tmp_path / "intercept").write_text(intercept_text(loaded, time.time() + 600, 0))
    assert "plugin  the intercept file is valid" in run("status").stdout
    config.write_text(config.read_text() + "scripts: {counts: [--my-gpus]}\n")
    assert "systemctl reload rlallocd" in run("status").stdout
    (tmp_path / "intercept").write_text(intercept_text(loaded, 0, 0))
    assert "missing or withdrawn" in run("status").stdout
    (tmp_path / "intercept").write_text(intercept_text(loaded, time.time() - 3600, 0))
    assert "is not valid since 20" in run("status").stdout


def test_any_name_is_printed_on_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its character in the locale, and where somebody says that the terminal has no columns."""
    bytes_written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_written, "ascii"))
    monkeypatch.setenv("COLUMNS", "0")
    escape_what_cannot_be_printed()
    make_console().print("job 7 'caf\N{LATIN SMALL LETTER E WITH ACUTE}' of ada")
    sys.stdout.flush()
    assert bytes_written.getvalue() == rb"job 7 'caf\xe9' of ada" + b"\n"


def test_root_replaces_no_device_by_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it did with /dev/null, /dev/full and /dev/stdout."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link", "/dev/stdin"):
        with pytest.raises(typer.Exit):
            write_page(tmp_path / name, "<html>")
        assert "not a regular file" in capsys.readouterr().err
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)
    assert (tmp_path / "link").is_symlink()
    for text in ("<html>", "<html lang=en>"):
        write_page(tmp_path / "page.html", text)
    assert (tmp_path / "page.html").read_text() == "<html lang=en>"
