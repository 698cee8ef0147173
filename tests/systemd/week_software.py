"""How rlalloc comes onto the site of the week, and leaves it: the steps of docs/admin/install.md and upgrade.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.systemd import built_packages
from tests.systemd.conftest import PROJECT_INSIDE, VENV_INSIDE, container_binds
from tests.systemd.documented_steps import follow, steps

if TYPE_CHECKING:
    from tests.systemd.systemd_container import Container

INSTALL: Final = str(PROJECT_INSIDE / "scripts/install-site.sh")
PACKAGES: Final = Path("/srv/packages")
NEXT_PACKAGES: Final = Path("/srv/next-packages")


class FromTheScript:
    """scripts/install-site.sh, with what the virtual environment of the tests has."""

    def __init__(self) -> None:
        self.binds = container_binds()
        """What the container sees, and where."""

    def install(self, container: Container) -> None:
        """Run the script."""
        container.run(INSTALL, "--dependencies-from", str(VENV_INSIDE), limit_s=400)


class FromPackages:
    """`make deb`, of this version and of a next one whose store has a further revision.

    With the real packages of Python libraries (RLALLOC_TEST_LIBRARIES), the site sees nothing of this checkout.
    """

    def __init__(self, folder: Path) -> None:
        these, following, wheels = folder / "these", folder / "following", folder / "wheels"
        built_packages.fill_wheels(wheels)
        built_packages.build(built_packages.PROJECT, wheels, these)
        built_packages.copy_as_next_version(folder / "next-project")
        built_packages.build(folder / "next-project", wheels, following)
        real = built_packages.add_libraries(VENV_INSIDE, folder, these)
        self.binds = {these: PACKAGES, following: NEXT_PACKAGES, **({} if real else container_binds())}
        self.libraries = "their own packages" if real else "the virtual environment of the tests"
        """Where Python's libraries come from."""

        self.version = ""

    def install(self, container: Container) -> None:
        """From packages, as docs/admin/install.md has it."""
        follow(container, steps("install.md", "As Debian packages", "apt-get"), PACKAGES)
        self.version = container.run("rlalloc", "--version").stdout.split()[1]

    def upgrade(self, container: Container) -> str:
        """The same with the next version's, after a copy of the store."""
        follow(container, steps("upgrade.md", "Back up the store", "cp -a"))
        return _told(follow(container, steps("upgrade.md", "Upgrade", "apt-get"), NEXT_PACKAGES))

    def downgrade(self, container: Container) -> str:
        """Back to this version, which refuses the newer store."""
        said = follow(container, steps("upgrade.md", "Go back", "--allow-downgrades"), PACKAGES)
        assert built_packages.NEXT in said.partition("rlallocd.service does not run; it last said")[2], said
        return _told(said)

    def put_back_the_store(self, container: Container) -> None:
        """The copy from before the upgrade."""
        follow(container, steps("upgrade.md", "Go back", "store.sqlite"))

    def remove(self, container: Container) -> None:
        """As docs/admin/upgrade.md has it."""
        follow(container, steps("upgrade.md", "Uninstall", "apt-get"))


def _told(said: str) -> str:
    """What the packages say about what they did."""
    return "; ".join(line.removeprefix("rlalloc: ") for line in said.splitlines() if line.startswith("rlalloc: "))
