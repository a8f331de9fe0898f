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
        "Be an analyst whom sites know: sign questions, so that nobody else can ask in your name.",
    ),
    "completion": (
        "privinf.cli.schemas:completion_command",
        "Print what makes a shell complete privinf's commands, for its startup file.",
    ),
    "federation": (
        "privinf.cli.federations:federation_group",
        "Bring sites together: keys and certificates, the server, and fits over all sites.",
    ),
    "fit": (
        "privinf.cli.fits:fit_command",
        "Fit a regression to the rows of one table, which is charged, or to releases, which costs nothing.",
    ),
    "join": (
        "privinf.cli.releases:join_command",
        "Put the releases of all parties into one file, once they are seen to belong together.",
    ),
    "ledger": (
        "privinf.cli.ledgers:ledger_group",
        "Keep account of all that is released about the same people.",
    ),
    "plan": (
        "privinf.cli.plans:plan_group",
        "Make or check the public plan that all data holders follow.",
    ),
    "release": (
        "privinf.cli.releases:release_command",
        "Turn your rows into one file of noisy sums that may leave the house.",
    ),
    "report": (
        "privinf.cli.fits:report_command",
        "Write a web page of a saved result, .npz: summary, plots, trade-off curve, ledger lines.",
    ),
    "schema": (
        "privinf.cli.schemas:schema_group",
        "Write down what is public about a table, and check it: columns, bounds, levels.",
    ),
    "site": (
        "privinf.cli.holders:site_group",
        "Be a site of a federation: hold rows, and answer named sums under your own policy and budget.",
    ),
    "study": (
        "privinf.cli.fits:study_command",
        "Predict intervals and power of a regression, from a schema and guesses: no row is read.",
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
    help="TOML file of options: [fit] epsilon = 1; what is typed wins.",
)
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
        from privinf.cli.inputs import read_toml  # late: help needs none of what reads files

        assert isinstance(ctx.command, click.Group)
        ctx.default_map = _defaults(ctx, ctx.command, read_toml(config), str(config))


def _defaults(ctx: click.Context, group: click.Group, content: dict[str, Any], place: str) -> dict[str, Any]:
    """Return options of a configuration by the names that click gives them; what is none is refused."""
    defaults: dict[str, Any] = {}
    for name, item in content.items():
        command = group.get_command(ctx, name)
        if command is None or not isinstance(item, dict):
            raise ArgumentError(
                f"{place}: [{name}] is not a command; there are {', '.join(group.list_commands(ctx))}"
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
            raise ArgumentError(f"{place}: [{name}] has no option {unknown[0]!r}; see privinf {name} --help")
        defaults[name] = {names[f"--{word}"]: value for word, value in item.items()}
    return defaults
