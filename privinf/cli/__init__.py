"""The command line ``privinf``: what data holders, sites and analysts type."""

from __future__ import annotations

import click

from privinf.cli.outputs import SafeGroup
from privinf.cli.plans import plan_group
from privinf.cli.releases import fit_command, join_command, release_command
from privinf.cli.sites import site_group

__all__ = ["main"]


@click.group(
    cls=SafeGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="privinf")
def main() -> None:
    """Regression without pooling the rows of several data holders.

    \b
    Different columns of the same people:
    1. Together:     privinf plan new    agree on people, columns with bounds, and budgets
    2. Each holder:  privinf release     turn its own rows into one file that may leave the house
    3. The analyst:  privinf fit         run a regression on those files alone

    \b
    The same columns of different people:
    Each site:       privinf site        answer named sums under its own policy and budget

    Holders never see one another's rows, and the analyst sees none. Every file that leaves a holder says what
    it may reveal about one person (epsilon, delta). Errors leave everything as it was: exit code 2, nothing
    spent, nothing half-written.
    """  # noqa: D301


for command in (plan_group, release_command, join_command, fit_command, site_group):
    main.add_command(command)
