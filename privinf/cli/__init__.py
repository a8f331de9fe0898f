"""The command line ``privinf``: what data holders, sites and analysts type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privinf.cli.groups import TypedGroup
from privinf.errors import ArgumentError

__all__ = ["main"]


# Modules by name, so that help imports none of them; a test compares the sentences with the commands' own.
COMMANDS = {
    "analyst": (
        "privinf.cli.sites:analyst_group",
        "Make the key with which you, as an analyst, sign your queries.",
    ),
    "completion": (
        "privinf.cli.schemas:completion_command",
        "Print shell code that completes privinf's commands.",
    ),
    "federation": (
        "privinf.cli.federations:federation_group",
        "Set up a federation of sites, and fit models to all their rows.",
    ),
    "fit": (
        "privinf.cli.fits:fit_command",
        "Fit a regression to a table's rows, or to releases.",
    ),
    "join": (
        "privinf.cli.releases:join_command",
        "Check the releases of all parties, and join them into one file.",
    ),
    "ledger": (
        "privinf.cli.ledgers:ledger_group",
        "Create and inspect budget ledgers, which record all releases.",
    ),
    "plan": (
        "privinf.cli.plans:plan_group",
        "Make or check the public plan that all parties follow.",
    ),
    "release": (
        "privinf.cli.releases:release_command",
        "Turn your rows into one file of noisy sums that you may share.",
    ),
    "report": (
        "privinf.cli.fits:report_command",
        "Write a saved result (.npz) as an HTML page.",
    ),
    "schema": (
        "privinf.cli.schemas:schema_group",
        "Write and check a schema: public columns, bounds and levels.",
    ),
    "site": (
        "privinf.cli.holders:site_group",
        "Run a site, which holds rows and answers queries about them.",
    ),
    "study": (
        "privinf.cli.fits:study_command",
        "Predict a regression's intervals and power before data exist.",
    ),
}


@click.group(
    cls=TypedGroup,
    places=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=("TOML file of options, such as [fit] epsilon = 1; options on the command line override the file."),
)
@click.version_option(package_name="privinf")
@click.pass_context
def main(ctx: click.Context, config: Path | None) -> None:
    """Fit regressions with differential privacy: estimates, standard errors, and the privacy spent.

    \b
    To plan a study, before there are rows:
    0. privinf study            choose estimator, budget and number of people; predict intervals

    \b
    One table, one curator:
    1. privinf schema suggest   declare the public columns, bounds and levels; privinf schema check
    2. privinf ledger create    set the budget of all releases about these people
    3. privinf fit --schema     fit a regression to the rows; or privinf release --schema, to fit later

    \b
    Several parties with different columns of the same people:
    1. Together:     privinf plan new    agree on people, columns with bounds, and budgets
    2. Each party:   privinf release     turn its own rows into one noisy file to share
    3. The analyst:  privinf fit         fit a regression to these files alone

    \b
    Several sites with the same columns of different people:
    1. Each site:    privinf site        answer queries under its own policy and budget
    2. Together:     privinf federation  set up roster, certificates and server; fit over all sites
    The analyst:     privinf analyst     make a key that signs queries

    Every released file states its privacy guarantee for one person (epsilon, delta). A refused command exits
    with code 2. It spends nothing and writes nothing, unless its message states otherwise.
    """  # noqa: D301
    if config is not None:
        from privinf.cli.inputs import read_toml  # late: help needs none of what reads files

        assert isinstance(ctx.command, click.Group)
        ctx.default_map = _defaults(ctx, ctx.command, read_toml(config), str(config))


def _defaults(ctx: click.Context, group: click.Group, content: dict[str, Any], place: str) -> dict[str, Any]:
    """Return options of a configuration by click's names; refuse unknown ones."""
    defaults: dict[str, Any] = {}
    for name, item in content.items():
        command = group.get_command(ctx, name)
        if command is None or not isinstance(item, dict):
            raise ArgumentError(
                f"{place}: the table [{name}] is not named after a command; the commands are "
                f"{', '.join(group.list_commands(ctx))}"
            )
        if isinstance(command, click.Group):
            defaults[name] = _defaults(ctx, command, item, f"{place}, {name}")
            continue
        names = {
            word: parameter.name
            for parameter in command.params
            for word in parameter.opts
            if isinstance(parameter, click.Option)
        }
        if unknown := [word for word in item if f"--{word}" not in names]:
            raise ArgumentError(
                f"{place}: the command of [{name}] has no option {unknown[0]!r}; see privinf {name} --help"
            )
        defaults[name] = {names[f"--{word}"]: value for word, value in item.items()}
    return defaults
