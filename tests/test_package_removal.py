"""What the packages' scripts leave behind when they are removed: Slurm, and every job, would fail without it.

The scripts run as they are, but for their paths, which lie in a folder of the test.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OWN = "#!/bin/sh\necho export SITE=1\nexec /usr/lib/rlalloc/task_{kind}log\n"
PATHS = (
    *("/usr/lib/rlalloc", "/etc/slurm", "/run/slurm", "/run/rlalloc", "/etc/default/rlalloc", "/etc/rlalloc"),
    *("/var/lib/rlalloc", "/var/cache/rlalloc", "/etc/systemd/system", "/run/systemd", "/opt/rlalloc"),
    "/var/lib/systemd/timers",
)


def _run(
    tmp_path: Path, script: str, *words: str, status: int = 0, environment: Mapping[str, str] | None = None
) -> str:
    """Run a script of a package whose paths lie below ``tmp_path``; what it said. No slurmctld answers by default."""
    scontrol = tmp_path / "bin/scontrol"
    if not scontrol.exists():
        _write_program(scontrol, "exit 1")
    found = re.sub("|".join(f"(?<![\\w}}]){path}" for path in PATHS), lambda path: f"{tmp_path}{path[0]}", script)
    done = subprocess.run(
        ["sh", "-s", "--", *words], input=found, capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SLURM_CONF": str(tmp_path / "none"), **(environment or {})},
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def _write_program(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _removes_node_package(packager: str) -> tuple[str, str, str]:
    """The scripts that run before and after the files of rlalloc-node are gone, and their argument."""
    if packager == "deb":
        before, after = ((ROOT / f"debian/rlalloc-node.{name}").read_text() for name in ("prerm", "postrm"))
        return before, after, "remove"
    before, _, rest = (
        (ROOT / "packages/rlalloc.spec").read_text().partition("%preun node\n")[2].partition("\n# Slurm")
    )
    return before, rest.partition("%postun node\n")[2].partition("\n%files")[0], "0"


@pytest.mark.parametrize("packager", ["deb", "rpm"])
@pytest.mark.parametrize("kind", ["pro", "epi"])
@pytest.mark.parametrize(
    ("conf", "left"),
    [
        ("Task{Kind}log=/usr/lib/rlalloc/task_{kind}log\n", True),
        ('  task{kind}log = "/usr/lib/rlalloc/task_{kind}log" # resizes\n', True),
        ("Task{Kind}log=/etc/slurm/own\n", True),
        ("Task{Kind}log=/etc/slurm/other\n", False),
        ("#Task{Kind}log=/usr/lib/rlalloc/task_{kind}log\n", False),
        (None, False),
    ],
)
def test_a_script_that_slurm_calls_stays(
    tmp_path: Path, packager: str, kind: str, conf: str | None, left: bool
) -> None:
    """Also where the site's own script ends with ours, as docs/admin/enforce.md tells it to."""
    slurm = tmp_path / "etc/slurm"
    slurm.mkdir(parents=True)
    (slurm / "own").write_text(OWN.format(kind=kind).replace("/usr/lib/rlalloc", f"{tmp_path}/usr/lib/rlalloc"))
    (slurm / "other").write_text("#!/bin/sh\n")
    if conf is not None:
        text = conf.format(kind=kind, Kind=kind.capitalize())
        (slurm / "slurm.conf").write_text(re.sub(r"(/usr/lib|/etc)", rf"{tmp_path}\1", text))
    before, after, argument = _removes_node_package(packager)
    library = tmp_path / "usr/lib/rlalloc"
    library.mkdir(parents=True)
    scripts = ("task_prolog", "task_epilog")
    for name in scripts:
        shutil.copy(ROOT / "slurm_plugin" / name, library)
    _run(tmp_path, before, argument)
    assert all((library / name).exists() for name in scripts)  # jobs start while the package's files are removed
    said = _run(tmp_path, after, argument)
    assert [path.name for path in library.iterdir()] == ([f"task_{kind}log"] if left else [])
    assert ("left" in said) == left
    if left:  # jobs that were resized before still need what it does
        script = library / f"task_{kind}log"
        assert script.read_text() == (ROOT / "slurm_plugin" / script.name).read_text()
        subprocess.run([script], check=True)


def test_no_package_owns_what_slurm_conf_names(tmp_path: Path) -> None:
    """Dpkg and rpm would remove it before anybody has asked Slurm; an upgrade from one that did own it leaves it."""
    owned = tomllib.loads((ROOT / "packages/layout.toml").read_text())["rlalloc-node"]["files"]
    assert not [path for path in owned if re.search(r"rlalloc/task_(pro|epi)log$", path)]
    library, divert = tmp_path / "usr/lib/rlalloc", tmp_path / "diverted"
    (library / "node").mkdir(parents=True)
    for name in ("task_prolog", "task_epilog"):
        (library / "node" / name).write_text("new")
        (library / name).write_text("old")
    _write_program(tmp_path / "bin/dpkg-query", f"echo {library}/task_prolog; echo {library}/task_epilog")
    _write_program(
        tmp_path / "bin/dpkg-divert",
        f'case "$*" in *--list*) grep -s "${{2}}" {divert} ;; *) echo "$*" >>{divert} ;; esac || true',
    )
    preinst = (ROOT / "debian/preinst-of-programs").read_text()
    assert "dpkg-divert" not in preinst  # of the other packages
    preinst = preinst.replace("#NODE#\n", (ROOT / "debian/preinst-of-node").read_text())
    environment = {"DPKG_MAINTSCRIPT_PACKAGE": "rlalloc-node"}
    _run(tmp_path, preinst, "upgrade", environment=environment)
    assert divert.read_text().count("--local --no-rename --divert") == 2
    said = _run(tmp_path, (ROOT / "debian/rlalloc-node.postinst").read_text(), "configure")
    assert not said
    for name in ("task_prolog", "task_epilog"):
        assert (library / name).read_text() == "new"
        assert os.access(library / name, os.X_OK)
        assert f"--remove {library / name}" in divert.read_text()


@pytest.mark.parametrize(
    ("conf", "kept"),
    [
        ("JobSubmitPlugins=lua\n", True),
        ("jobsubmitplugins = all_partitions,lua\n", True),
        ("JobSubmitPlugins=all_partitions\n", False),
        ("ClusterName=one\n", False),
    ],
)
def test_a_job_submit_lua_that_slurmctld_loads_stays(tmp_path: Path, conf: str, kept: bool) -> None:
    """Slurmctld does not start without it."""
    for place in ("etc/slurm", "usr/lib/rlalloc", "etc/default", "run/rlalloc"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text(conf)
    for place in ("etc/slurm", "usr/lib/rlalloc"):
        (tmp_path / place / "job_submit.lua").write_text("-- rlalloc\n")
    said = _run(tmp_path, (ROOT / "packages/package_steps").read_text(), "plugin-removed")
    assert (tmp_path / "etc/slurm/job_submit.lua").exists() == kept, said


def test_a_job_submit_lua_that_another_file_of_slurm_conf_names_stays(tmp_path: Path) -> None:
    """Slurmctld says so: its answer is as Slurm prints it."""
    _write_program(tmp_path / "bin/scontrol", "echo 'JobSubmitPlugins        = lua'")
    test_a_job_submit_lua_that_slurmctld_loads_stays(tmp_path, "Include plugins.conf\n", kept=True)


_SHIPPED = "9e6dc97f1d94fd2163bf0900db9ec75bd1a9e0d48c72fc2bc5cf27e12da171b3"
_CALLS_MODIFY = """(job_desc, job_rec, _part_list, modify_uid)
   local refusal = rlalloc ~= nil and rlalloc.job_modify(job_desc, job_rec, modify_uid)
   return refusal or slurm.SUCCESS
"""
_CALLED_NOTHING = """(_job_desc, _job_rec, _part_list, _modify_uid)
   return slurm.SUCCESS
"""


def test_the_sum_of_each_job_submit_lua_is_kept() -> None:
    """Before you change the file, add its sum to SHIPPED_BEFORE in packages/package_steps. Put the new one here."""
    shipped = (ROOT / "slurm_plugin/job_submit.lua").read_bytes()
    assert hashlib.sha256(shipped).hexdigest() == _SHIPPED
    assert _SHIPPED not in (ROOT / "packages/package_steps").read_text()


@pytest.mark.parametrize("kind", ["shipped before", "changed", "linked", "with an rlalloc.lua of its own", "none"])
def test_a_job_submit_lua_that_was_shipped_before_is_replaced(tmp_path: Path, kind: str) -> None:
    """One that the site has changed stays."""
    new = ROOT / "slurm_plugin/job_submit.lua"
    before = new.read_text().replace(_CALLS_MODIFY, _CALLED_NOTHING)
    slurm = tmp_path / "etc/slurm"
    slurm.mkdir(parents=True)
    script = slurm / "job_submit.lua"
    match kind:
        case "changed":
            before += "-- ours\n"
        case "linked":
            script.symlink_to("ours.lua")
        case "with an rlalloc.lua of its own":
            (slurm / "rlalloc.lua").touch()
    if kind != "none":
        script.write_text(before)
        script.chmod(0o640)
    others = tmp_path / "shadow"
    others.write_text("secret")
    if kind == "shipped before":  # the folder's owner may be SlurmUser, and the program is root's
        (slurm / "job_submit.lua.new").symlink_to(others)
    said = _run(tmp_path, (ROOT / "packages/package_steps").read_text(), "renew-script", str(new), str(script))
    assert others.read_text() == "secret"
    assert not script.is_symlink() or kind == "linked"
    if kind == "none":
        assert (script.exists(), said) == (False, "")
        return
    replaced = kind == "shipped before"
    assert script.read_text() == (new.read_text() if replaced else before)
    assert script.stat().st_mode & 0o777 == 0o640
    assert ("replaced" in said) == replaced
    assert sorted(path.name for path in slurm.glob("*.new")) == []


@pytest.mark.parametrize("packager", ["deb", "rpm"])
def test_a_package_is_not_mixed_with_an_installation_by_the_script(tmp_path: Path, packager: str) -> None:
    """The script's environment has pip, a package's has not."""
    if packager == "deb":
        script, words = (ROOT / "debian/preinst-of-programs").read_text(), ("install",)
    else:
        macro = (ROOT / "packages/rlalloc.spec").read_text().partition("%define before_installing() ")[2]
        script, words = macro.partition("\n\n")[0].replace("\\\n", "\n"), ("1",)
    assert _run(tmp_path, script, *words) == ""
    pip = tmp_path / "opt/rlalloc/bin/pip"
    pip.parent.mkdir(parents=True)
    pip.touch()
    assert "scripts/install-site.sh --uninstall first" in _run(tmp_path, script, *words, status=1)


def test_a_purge_removes_what_is_ours_and_names_what_is_the_sites(tmp_path: Path) -> None:
    var = ("var/lib/rlalloc", "var/lib/rlallocd", "var/cache/rlalloc")
    ours = ("etc/rlalloc", *var, "run/rlalloc", "run/rlalloc-packages")
    drop_in = tmp_path / "etc/systemd/system/rlallocd.service.d"
    for folder in (*(tmp_path / name for name in ours), drop_in, tmp_path / "srv/conf", tmp_path / "etc/default"):
        folder.mkdir(parents=True)
    script = tmp_path / "srv/conf/job_submit.lua"
    script.write_text("-- rlalloc\n")
    (tmp_path / "etc/default/rlalloc").write_text(f"SLURM_CONF={tmp_path}/srv/conf/slurm.conf\n")
    said = _run(tmp_path, (ROOT / "debian/rlalloc.postrm").read_text(), "purge")
    assert not [name for name in ours if (tmp_path / name).exists()]
    for left in (script, drop_in, tmp_path / "etc/default/rlalloc"):
        assert left.exists()
        assert f"left {left}" in said
    assert "left the users" in said


@pytest.mark.parametrize(
    ("package", "unit"),
    [("rlalloc", "rlallocd"), ("rlalloc-agent", "rlalloc-agent"), ("rlalloc-trainer", "rlalloc-train")],
)
def test_no_failed_unit_and_no_stamp_is_left(tmp_path: Path, package: str, unit: str) -> None:
    """A training that the removal has ended would stay in `systemctl --failed`, of a unit that is no more."""
    _write_program(tmp_path / "bin/systemctl", f'echo "$@" >>{tmp_path}/asked; [ $1 != reset-failed ]')
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    stamp = tmp_path / "var/lib/systemd/timers/stamp-rlalloc-train.timer"
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    for step in ("remove", "purge"):
        _run(tmp_path, (ROOT / f"debian/{package}.postrm").read_text(), step)
    assert (tmp_path / "asked").read_text() == f"daemon-reload\nreset-failed {unit}.service\n"
    assert stamp.exists() == (unit != "rlalloc-train")


@pytest.mark.parametrize("unit", ["rlallocd", "rlalloc-agent", "rlalloc-train"])
def test_a_removal_of_an_rpm_leaves_no_failed_unit_either(tmp_path: Path, unit: str) -> None:
    _write_program(tmp_path / "bin/systemctl", f'echo "$@" >>{tmp_path}/asked; [ $1 != reset-failed ]')
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    spec = (ROOT / "packages/rlalloc.spec").read_text()
    assert f"%after_removal {unit}\n" in spec
    macro = spec.partition("%define after_removal() \\\n")[2].partition("\n\n")[0]
    _run(tmp_path, macro.replace(" \\\n", "\n").replace("%{1}", unit), "0")
    assert (tmp_path / "asked").read_text() == f"daemon-reload\nreset-failed {unit}.service\n"
