"""Which rlallocd a command asks."""

from pathlib import Path

import pytest

from rlalloc_cli.own_jobs import directory_named_in


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("runtime_directory: /run/rl", "/run/rl"),
        ("runtime_directory:   /run/rl  # comment", "/run/rl"),
        ('runtime_directory: "/run/rl alloc#1"', "/run/rl alloc#1"),
        ("runtime_directory: '/run/it''s'  # comment", "/run/it's"),
        ("runtime_directory:", "/default"),
        ('runtime_directory: "/run/rl', "/default"),
        ("grace_s: 60", "/default"),
    ],
)
def test_a_file_with_an_error_still_names_the_directory(
    line: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLALLOC_RUNTIME_DIRECTORY", "/default")
    path = tmp_path / "rlalloc.yaml"
    path.write_text(f"wrong: 1\n{line}\nmode: enforce\n")
    assert directory_named_in(path) == Path(named)
