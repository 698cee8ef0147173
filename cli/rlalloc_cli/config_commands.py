"""``rlalloc config``: the configuration, checked and shown."""

from typing import Annotated

import msgspec
import typer

from rlalloc.config import DEFAULT_PATH, config_as_yaml
from rlalloc.errors import ConfigError, StoreError
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.store.database import without_secrets
from rlalloc_cli.config_option import ConfigForAllOption, loaded_config
from rlalloc_cli.terminal import CONSOLE, fail

config_app = typer.Typer(no_args_is_help=True, help="Check or show the configuration.")


@config_app.command("check")
def config_check(
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Check the file alone, and ask Slurm nothing.")] = False,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Check the configuration file, and that it fits the site. Exit 2 if the file is wrong, 1 if it does not fit.

    Names the words of the shipped lists of section `scripts` that the file's own lists lack.
    """
    from rlalloc.curve_keys import check_keys
    from rlalloc.store.database import check_url
    from rlalloc_cli.doctor.doctor_report import print_findings
    from rlallocd.checks.finding import worst
    from rlallocd.checks.site_checks import daemon_user, site_findings
    from rlallocd.slurm import Commands

    loaded = loaded_config(config)
    try:
        check_keys(loaded.agent)
        if not offline:  # a reload does not take up another store
            check_url(loaded.store.url)
    except (ConfigError, StoreError) as err:
        fail(str(err), code=2)
    for name, shipped in msgspec.structs.asdict(ScriptRules()).items():
        if lacking := [word for word in shipped if word not in getattr(loaded.scripts, name)]:
            CONSOLE.print(f"{config}: scripts.{name} lacks words of the shipped list: {', '.join(lacking)}")
    if offline:
        CONSOLE.print(f"{config}: OK as a file; Slurm was not asked")
        return
    site, found = site_findings(loaded, Commands(loaded.slurm.command_timeout_s), daemon_user())
    print_findings([finding for finding in found if finding.level != "OK"])
    if site is None:
        CONSOLE.print(f"{config}: OK as a file; whether it fits the site is not known")
    elif worst(found) == "FAIL":
        CONSOLE.print(f"{config}: the file is right, but does not fit the site: see FAIL above")
        raise typer.Exit(1)
    else:
        CONSOLE.print(f"{config}: OK")


@config_app.command("show")
def config_show(
    *,
    secrets: Annotated[bool, typer.Option("--secrets", help="Show passwords, too.")] = False,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Print the complete configuration, defaults included, with passwords as ***."""
    loaded = loaded_config(config)
    if not secrets:
        store = msgspec.structs.replace(loaded.store, url=without_secrets(loaded.store.url))
        loaded = msgspec.structs.replace(loaded, store=store)
    typer.echo(config_as_yaml(loaded), nl=False)
