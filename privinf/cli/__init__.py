"""The command line ``privinf``: what data holders, sites and analysts type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privinf.cli.doctor import doctor_command, status_command
from privinf.cli.federations import federation_group
from privinf.cli.fits import fit_command, report_command, study_command
from privinf.cli.holders import init_command, rebase_command, up_command
from privinf.cli.inputs import read_toml
from privinf.cli.ledgers import ledger_group
from privinf.cli.outputs import FILE, SafeGroup
from privinf.cli.plans import plan_group
from privinf.cli.releases import join_command, release_command
from privinf.cli.schemas import completion_command, schema_group
from privinf.cli.sites import analyst_group, site_group
from privinf.errors import ArgumentError

__all__ = ["main"]


@click.group(
    cls=SafeGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--config", type=FILE, help="TOML file of options: [fit] epsilon = 1; what is typed wins.")
@click.version_option(package_name="privinf")
@click.pass_context
def main(ctx: click.Context, config: Path | None) -> None:
    """Statistical inference from private data: results, standard errors, and what they cost in privacy.

    \b
    Before there are rows:
    0. privinf study            which estimator, how wide its intervals, how many people, which budget

    \b
    One table, one curator:
    1. privinf schema suggest   write down what is public: columns, bounds, levels; check it
    2. privinf ledger create    set the limit of what may ever be released
    3. privinf fit --schema     fit a regression to the rows; or privinf release --schema, and fit it later

    \b
    Different columns of the same people, at several parties:
    1. Together:     privinf plan new    agree on people, columns with bounds, and budgets
    2. Each holder:  privinf release     turn its own rows into one file that may leave the house
    3. The analyst:  privinf fit         run a regression on those files alone

    \b
    The same columns of different people:
    1. Each site:    privinf site        answer named sums under its own policy and budget
    2. Together:     privinf federation  roster, certificates, server, and fits over all sites
    The analyst:     privinf analyst     a key to sign questions by

    Every file that leaves a holder says what it may reveal about one person (epsilon, delta). Errors leave
    everything as it was: exit code 2, nothing spent, nothing half-written, unless the message says so.
    """  # noqa: D301
    if config is not None:
        assert isinstance(ctx.command, click.Group)
        ctx.default_map = _defaults(ctx, ctx.command, read_toml(config), str(config))


def _defaults(ctx: click.Context, group: click.Group, content: dict[str, Any], where: str) -> dict[str, Any]:
    """Return options of a configuration by the names that click gives them; what is none is refused."""
    found: dict[str, Any] = {}
    for name, item in content.items():
        command = group.get_command(ctx, name)
        if command is None or not isinstance(item, dict):
            raise ArgumentError(f"{where}: [{name}] is no command; there are {', '.join(group.commands)}")
        if isinstance(command, click.Group):
            found[name] = _defaults(ctx, command, item, f"{where}, {name}")
            continue
        known = {
            word: one.name for one in command.params for word in one.opts if isinstance(one, click.Option)
        }
        if unknown := [word for word in item if f"--{word}" not in known]:
            raise ArgumentError(f"{where}: [{name}] has no option {unknown[0]!r}; see privinf {name} --help")
        found[name] = {known[f"--{word}"]: value for word, value in item.items()}
    return found


COMMANDS = (
    schema_group, ledger_group, study_command, fit_command, report_command, release_command, plan_group,
    join_command, site_group, federation_group, analyst_group, completion_command,
)  # fmt: skip
for one in COMMANDS:
    main.add_command(one)
for one in (init_command, up_command, rebase_command, doctor_command, status_command):
    site_group.add_command(one)
