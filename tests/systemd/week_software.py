"""How rlalloc comes onto the site of the week, and leaves it: the steps of docs/admin/install.md and upgrade.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.systemd import built_packages
from tests.systemd.conftest import PROJECT_INSIDE, VENV_INSIDE, container_binds
from tests.systemd.week_site import STATE

if TYPE_CHECKING:
    from tests.systemd.systemd_container import Container

INSTALL: Final = str(PROJECT_INSIDE / "scripts/install-site.sh")
PACKAGES: Final = Path("/srv/packages")
NEXT_PACKAGES: Final = Path("/srv/next-packages")
OURS: Final = "rlalloc rlalloc-agent rlalloc-trainer rlalloc-node"
STORE_COPY: Final = "/root/store.sqlite"


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
        """`apt-get install ./build/packages/*.deb`."""
        self._apt_get(container, f"install -y {PACKAGES}/*.deb")
        self.version = container.run("rlalloc", "--version").stdout.split()[1]

    def upgrade(self, container: Container) -> str:
        """The same with the next version's, after a copy of the store."""
        container.run("systemctl", "stop", "rlallocd")
        container.run("cp", "-a", f"{STATE}/store.sqlite", STORE_COPY)
        container.run("systemctl", "start", "rlallocd", limit_s=120)
        return _told(self._apt_get(container, f"install -y {NEXT_PACKAGES}/*.deb"))

    def downgrade(self, container: Container) -> str:
        """Back to this version, which refuses the newer store."""
        said = self._apt_get(container, f"install -y --allow-downgrades {PACKAGES}/*.deb")
        assert built_packages.NEXT in said.partition("rlallocd.service does not run; it last said")[2], said
        return _told(said)

    def put_back_the_store(self, container: Container) -> None:
        """The copy from before the upgrade."""
        container.run("sh", "-c", f"rm {STATE}/store.sqlite*; cp -a {STORE_COPY} {STATE}/")
        container.run("systemctl", "reset-failed", "rlallocd")
        container.run("systemctl", "start", "rlallocd", limit_s=120)

    def remove(self, container: Container) -> None:
        """`apt-get remove`."""
        self._apt_get(container, f"remove -y {OURS}")

    def _apt_get(self, container: Container, words: str) -> str:
        return container.run("sh", "-c", f"DEBIAN_FRONTEND=noninteractive apt-get {words} 2>&1", limit_s=400).stdout


def _told(said: str) -> str:
    """What the packages say about what they did."""
    return "; ".join(line.removeprefix("rlalloc: ") for line in said.splitlines() if line.startswith("rlalloc: "))
