"""The command line ``privinf`` for data holders, sites and analysts."""

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
        "Print shell code that completes privinf's commands when you press the Tab key.",
    ),
    "federation": (
        "privinf.cli.federations:federation_group",
        "Set up a federation of sites, and fit models to all their rows.",
    ),
    "fit": (
        "privinf.cli.fits:fit_command",
        "Fit a regression to a table of rows, or to releases.",
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
        "Write a saved fit or saved survival curves (.npz) as an HTML page, or print a privacy statement.",
    ),
    "schema": (
        "privinf.cli.schemas:schema_group",
        "Write and check a schema: the public bounds and levels of a table's columns.",
    ),
    "site": (
        "privinf.cli.holders:site_group",
        "Run a site, which holds rows and answers queries about them.",
    ),
    "study": (
        "privinf.cli.fits:study_command",
        "Predict a regression's intervals and power before data exist.",
    ),
    "survival": (
        "privinf.cli.curves:survival_command",
        "Estimate survival curves and medians of a table of rows, and compare groups.",
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
    help=(
        "TOML file of options, with one table for each command, such as [fit] with the line "
        "epsilon = 1. Options on the command line override the file."
    ),
)
@click.version_option(package_name="privinf")
@click.pass_context
def main(ctx: click.Context, config: Path | None) -> None:
    """Fit regressions with differential privacy: estimates, standard errors, and the privacy spent.

    To plan a study before there are data, start with 'privinf study'. It compares estimators, budgets and
    numbers of people.

    \b
    One table that one curator holds:
    1. 'privinf schema suggest' writes a file to declare the public bounds and levels of the columns.
    2. 'privinf ledger create' sets the budget of all releases about these people.
    3. 'privinf fit --schema' fits a regression to the rows. Or 'privinf release' writes noisy sums for
       later fits.

    \b
    Several parties with different columns of the same people:
    1. The parties agree on a plan ('privinf plan new') with people, columns, bounds and budgets.
    2. Each party turns its own rows into one noisy file ('privinf release').
    3. The analyst fits a regression to these files alone ('privinf fit').

    \b
    Several sites with the same columns of different people:
    1. Each site answers queries under its own policy and budget ('privinf site').
    2. Each analyst makes a key that signs queries ('privinf analyst').
    3. 'privinf federation' sets up keys, certificates and server, and fits a model over all sites.

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
