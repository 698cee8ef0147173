"""Versions of Slurm: one module a generation, chosen by slurmctld's version; nothing else knows versions."""

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rlallocd.slurm import Slurm, SlurmError, UnexpectedAnswer
from rlallocd.slurm.generations import Capabilities, capabilities_of, generations, same_release, selection
from rlallocd.submissions.request_sizes import FORMS_SKIPPED

from .recordings import FIXTURES, Recorded, files_of, folder_of

ROOT = Path(__file__).parents[2]
GENERATIONS = Path(selection.__file__).parent
PYTHON = ("core", "daemon", "agent", "cli", "simulator", "trainer", "demo", "bench")
"""Not testbed: it starts Slurm's own daemons, each version with the settings that it needs (configuration.py)."""
SCRIPTS = ("slurm_plugin/*.lua", "slurm_plugin/task_prolog", "scripts/*.sh")
RELEASE = re.compile(r"\b2\d\.(02|05|08|11)\b")
PROBE = re.compile(
    r"SLURM_VERSION|slurm_version|ESLURM_(?!ACCOUNTING_POLICY)|--version-sort"
    r"|(sinfo|scontrol|slurmctld) (-V|--version)"
)
EVERY_GENERATION = pytest.mark.parametrize("generation", generations(), ids=lambda generation: generation.release)


class TestChoice:
    """By generations of 22.05, 24.11 (from 23.02 on) and 25.11, whatever others are known by now."""

    @pytest.fixture(autouse=True)
    def known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts = generations()[0]
        known = tuple(
            msgspec.structs.replace(facts, release=release, holds_from=holds_from)
            for release, holds_from in (("22.05", "22.05"), ("24.11", "23.02"), ("25.11", "25.11"))
        )
        monkeypatch.setattr(selection, "generations", lambda: known)

    @pytest.mark.parametrize(
        ("version", "release"),
        [
            *(("22.05.0", "22.05"), ("22.05.11", "22.05"), ("22.08.1", "22.05")),
            *(("23.02.0", "24.11"), ("23.11.10", "24.11"), ("24.11.5", "24.11"), ("25.05.3", "24.11")),
            *(("25.11.0-0rc1", "25.11"), ("25.11.7", "25.11")),
        ],
    )
    def test_a_version_between_two_generations_is_the_older_one(
        self, version: str, release: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert capabilities_of(version).release == release
        assert caplog.records == []

    @pytest.mark.parametrize("version", ["26.02.0", "26.05.1-0rc1", "31.05.0"])
    def test_a_newer_one_is_the_newest_with_one_warning(self, version: str, caplog: pytest.LogCaptureFixture) -> None:
        assert capabilities_of(version).release == "25.11"
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert version in record.message

    @pytest.mark.parametrize("version", ["21.08.8", "20.11.9", "19.05.0"])
    def test_an_older_one_is_refused_by_name(self, version: str) -> None:
        with pytest.raises(SlurmError, match=rf"Slurm {version}; rlalloc needs 22\.05 or later"):
            capabilities_of(version)

    @pytest.mark.parametrize("version", ["", "slurm", "n/a"])
    def test_what_is_no_version(self, version: str) -> None:
        with pytest.raises(UnexpectedAnswer):
            capabilities_of(version)

    def test_pyslurm_writes_releases_without_zeros(self) -> None:
        assert same_release("22.5.1", "22.05.8")
        assert not same_release("22.5.1", "22.08.2")


def test_a_change_of_slurm_conf_is_noticed_with_the_partitions() -> None:
    class Edited(Recorded):
        enforce = "none"

        def run(self, *words: str) -> str:
            text = super().run(*words)
            return re.sub(r"(?m)^(AccountingStorageEnforce *= ).*", rf"\1{self.enforce}", text)

    slurm = Slurm(commands := Edited(folder_of("24.11")), backend="cli")
    assert not slurm.config.limits_enforced
    commands.enforce = "associations,limits,qos,safe"
    assert not slurm.config.limits_enforced
    slurm.partitions()
    assert slurm.config.limits_enforced


def test_an_upgrade_of_slurmctld_is_noticed_with_the_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """Rlallocd reads them every minute; the plugin cannot see its slurmctld's version by itself."""
    caplog.set_level(logging.INFO)
    slurm = Slurm(commands := Recorded(folder_of("22.05")), backend="cli")
    slurm.partitions()
    assert slurm.capabilities == capabilities_of("22.05")
    commands.folder = folder_of("24.11")
    slurm.partitions()
    assert slurm.capabilities == capabilities_of("24.11")
    assert len(slurm.nodes()) == 4
    assert [record.message.split("(")[1].split(")")[0] for record in caplog.records] == [
        "Slurm 22.05.8, generation 22.05",
        "Slurm 24.11.5, generation 24.11",
    ]


@EVERY_GENERATION
class TestEveryGeneration:
    def test_it_is_chosen_for_its_versions(self, generation: Capabilities) -> None:
        for version in (generation.release, generation.holds_from, f"{generation.release}.7"):
            assert capabilities_of(version) == generation

    def test_its_module_has_its_name(self, generation: Capabilities) -> None:
        assert (GENERATIONS / f"slurm_{generation.release.replace('.', '_')}.py").is_file()

    def test_its_recordings_are_there(self, generation: Capabilities) -> None:
        """scripts/record-fixtures.sh makes them."""
        found = {path.name for path in folder_of(generation.release).glob("*")} - {"differences.toml"}
        assert found == set(files_of(generation))

    def test_what_it_skips_has_a_name_that_plugin_and_documentation_know(self, generation: Capabilities) -> None:
        plugin = (ROOT / "slurm_plugin" / "rlalloc.lua").read_text(encoding="utf-8")
        assert generation.skipped_forms <= set(FORMS_SKIPPED)
        assert all(f'skipped_forms["{form}"]' in plugin for form in generation.skipped_forms)


def test_every_recording_belongs_to_a_generation() -> None:
    assert {path.name for path in FIXTURES.glob("slurm-*")} == {f"slurm-{each.release}" for each in generations()}


def test_no_other_module_knows_versions_of_slurm() -> None:
    """What differs between versions is a field of Capabilities; comments and docstrings may name the version."""
    files = [path for folder in PYTHON for path in (ROOT / folder).rglob("*.py") if GENERATIONS not in path.parents]
    found = [f"{path.relative_to(ROOT)}:{what}" for path in files for what in _versions_in_python(path)]
    for pattern in SCRIPTS:
        for path in ROOT.glob(pattern):
            found += [f"{path.relative_to(ROOT)}:{what}" for what in _versions_in_script(path)]
    assert len(files) > 100
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        'old = version.startswith("22.05")',
        "new = release >= (23, 2)",
        "if config.slurm_version > other: pass",
        'TABLE = {"24.11": 1}',
        'text = f"Slurm 25.05 {x}"',
    ],
)
def test_such_code_would_be_found(code: str, tmp_path: Path) -> None:
    (path := tmp_path / "module.py").write_text(f'"""Slurm 22.05."""\n\n{code}\n', encoding="utf-8")
    assert len(list(_versions_in_python(path))) == 1


def _versions_in_python(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            if RELEASE.search(node.value):
                yield f"{node.lineno}: {node.value}"
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            year, month = (element.value if isinstance(element, ast.Constant) else None for element in node.elts)
            if isinstance(year, int) and 20 <= year < 40 and month in (2, 5, 8, 11):
                yield f"{node.lineno}: ({year}, {month})"
        elif isinstance(node, ast.Compare) and "slurm_version" in ast.dump(node) and not _asks_for_equality(node):
            yield f"{node.lineno}: {ast.unparse(node)}"


def _asks_for_equality(node: ast.Compare) -> bool:
    """Whether two versions are the same says nothing about either."""
    return all(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)


def _versions_in_script(path: Path) -> Iterator[str]:
    comment = re.compile(r"(^|\s)--.*" if path.suffix == ".lua" else r"(^|\s)#.*")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code = comment.sub("", line)
        if RELEASE.search(code) or PROBE.search(code):
            yield f"{number}: {line}"
