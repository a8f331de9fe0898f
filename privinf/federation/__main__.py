"""``python -m privinf.federation``: start the daemon of a site from a table, a schema and a policy."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import pandas as pd

from privinf.accounting import Budget
from privinf.errors import ArgumentError, PrivinfError, StorageError
from privinf.federation.daemon import SiteDaemon
from privinf.federation.keys import IdentityKey, Roster
from privinf.federation.policy import SitePolicy
from privinf.federation.site import Site
from privinf.federation.site_ledger import SiteLedger
from privinf.mechanisms.table_files import require_columns, table_source
from privinf.schema import Schema

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PLACE = click.Path(dir_okay=False, path_type=Path)


class _Refusal(click.ClickException):
    exit_code = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--name", required=True, help="Name of the site.")
@click.option("--data", type=click.Path(path_type=Path), required=True,
              help="Its rows: CSV (.csv, .tsv, .gz) or Parquet.")  # fmt: skip
@click.option("--schema", "schema_file", type=FILE, required=True,
              help='JSON: {"columns": {"age": {"low": 18, "high": 90}, "g": {"levels": [..]}}}')  # fmt: skip
@click.option("--formula", help="Model to be ready for from the start; others may follow.")
@click.option("--policy", "policy_file", type=FILE, required=True,
              help='JSON of a SitePolicy, such as {"secure_sums": true, "min_sites": 3}.')  # fmt: skip
@click.option("--ledger", "ledger_file", type=PLACE, required=True,
              help="Account of all that was ever released about these rows.")  # fmt: skip
@click.option("--budget-epsilon", type=float, help="Limit of a new ledger: epsilon of all releases together.")
@click.option("--budget-delta", type=float, help="The delta of that limit.")
@click.option("--key", "key_file", type=PLACE, help="Secret key for secure sums; made if it is not there.")
@click.option("--roster", "roster_file", type=FILE, help="Public keys of all sites, for secure sums.")
@click.option("--socket", "path", type=PLACE, required=True, help="Where the daemon can be asked.")
@click.option("--group", help="Group of the system whose members may ask; default: this account alone.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def main(
    name: str,
    data: Path,
    ledger_file: Path,
    budget_epsilon: float | None,
    budget_delta: float | None,
    path: Path,
    group: str | None,
    quiet: bool,
    **files: Any,
) -> None:
    """Hold the rows of a site and answer questions to it at a socket, until SIGTERM or SIGINT.

    \b
    python -m privinf.federation --name clinic --data rows.csv --schema schema.json \\
        --policy policy.json --ledger clinic.ledger --budget-epsilon 4 --budget-delta 1e-6 \\
        --socket /run/privinf/clinic.sock

    Rows, key and ledger stay in this process. Run it under an account of its own that alone can read these
    files; whoever may open the socket (the account itself, or --group) may ask, and the policy and the
    ledger's limit decide.
    """  # noqa: D301
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(message)s")
    with _plain_errors(), ExitStack() as stack:
        ledger = stack.enter_context(_ledger(ledger_file, budget_epsilon, budget_delta))
        site = _site(data, ledger, **files)
        daemon = stack.enter_context(SiteDaemon(site, name, path, group=group))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        if not quiet:
            click.echo(f"site {name} with {len(site)} rows answers at {daemon.path}")
        daemon.serve()


def _site(
    data: Path,
    ledger: SiteLedger,
    *,
    schema_file: Path,
    formula: str | None,
    policy_file: Path,
    key_file: Path | None,
    roster_file: Path | None,
) -> Site:
    """Return the site that these files describe."""
    key = None if key_file is None else _key(key_file)
    if (key_file is None) != (roster_file is None):
        raise ArgumentError("secure sums need --key and --roster, the public keys of all sites")
    schema = Schema.from_dict({"unit": None, "max_rows": 1} | _object(schema_file))
    source = table_source(data)
    require_columns(source, [*schema.columns])
    table = pd.concat(source.read([*schema.columns], schema), ignore_index=True)
    return Site(
        table,
        schema if formula is None else schema.design(formula),
        policy=_policy(policy_file),
        ledger=ledger,
        key=key,
        roster=None if roster_file is None else Roster.from_json(_text(roster_file)),
    )


def _policy(path: Path) -> SitePolicy:
    content = _object(path)
    if "operations" in content:
        content["operations"] = tuple(content["operations"])
    try:
        return SitePolicy(**content)
    except TypeError:
        raise ArgumentError(f"{path} holds something that is no part of a SitePolicy") from None


def _ledger(path: Path, epsilon: float | None, delta: float | None) -> SiteLedger:
    if (epsilon is None) != (delta is None):
        raise ArgumentError("a limit is --budget-epsilon and --budget-delta together")
    if epsilon is None and not path.exists():
        raise ArgumentError(f"there is no ledger at {path}: give its limit, --budget-epsilon")
    return SiteLedger(path, None if epsilon is None else Budget(epsilon=epsilon, delta=delta))


def _key(path: Path) -> IdentityKey:
    if path.exists():
        return IdentityKey.load(path)
    made = IdentityKey()
    made.save(path)
    click.echo(f"new key {path}; its public part for the roster: {made.public}")
    return made


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path))
    except ValueError:
        raise StorageError(f"{path} is not a JSON file") from None
    if not isinstance(content, dict):
        raise StorageError(f"{path} must hold a JSON object")
    return content


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise StorageError(f"{path} is not text in UTF-8") from None


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors as one line, without a traceback that might show values."""
    try:
        yield
    except (PrivinfError, OSError) as problem:
        raise _Refusal(str(problem)) from None
    except Exception as problem:
        raise click.ClickException(
            f"{type(problem).__name__}: a mistake in privinf; its text may quote rows and is not shown"
        ) from None


if __name__ == "__main__":
    main(prog_name="python -m privinf.federation")
