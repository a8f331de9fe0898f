"""Build a table of its original: ``python -m studies.data build bike --from bike+sharing+dataset.zip``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from privinf.errors import PrivinfError
from studies.data.packed import VARIABLE, read_parquet
from studies.data.recipes import RECIPES, build


@click.group(help=f"Tables of the folder that {VARIABLE} names: what is there, and what can be built.")
def main() -> None:
    """Run a command; without one, show the help."""


@main.command("list")
@click.option(
    "--to", "folder", envvar=VARIABLE, type=click.Path(path_type=Path), help=f"Folder; else {VARIABLE}."
)
def list_tables(folder: Path | None) -> None:
    """Say of every table whether it is there, and how it is built where it is not."""
    for name, recipe in RECIPES.items():
        path = None if folder is None else folder / name / "data.parquet"
        if path is None or not path.is_file():
            click.echo(f"{name}: absent; {recipe.how(name)}")
            continue
        try:
            same = recipe.check(read_parquet(path, name), path)
            click.echo(f"{name}: there" + ("" if same else ", its rows in another order"))
        except PrivinfError as problem:
            click.echo(f"{name}: {problem}")


@main.command("build")
@click.argument("name", type=click.Choice(list(RECIPES)))
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="What was downloaded: a file, or a folder of several.",
)
@click.option(
    "--to", "folder", envvar=VARIABLE, type=click.Path(path_type=Path), help=f"Folder; else {VARIABLE}."
)
def build_table(name: str, source: Path, folder: Path | None) -> None:
    """Build a table of its original, check its content, and write NAME/data.parquet into the folder."""
    if folder is None:
        raise click.UsageError(f"name a folder by --to, or set {VARIABLE}")
    path = folder / name / "data.parquet"
    if path.exists():
        raise click.UsageError(f"{path} is there already: move it away to build it again")
    try:
        table = build(name, source)
        same = RECIPES[name].check(table, source)
    except PrivinfError as problem:
        raise click.ClickException(str(problem)) from problem
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"data.{os.getpid()}.part")
    try:
        table.to_parquet(part, compression="zstd", index=False)
        part.replace(path)
    except ImportError as problem:
        raise click.ClickException("a Parquet file needs pyarrow: install privinf[parquet]") from problem
    finally:
        part.unlink(missing_ok=True)
    note = (
        "" if same else "; its rows stand in another order, so that draws with a seed differ from the pages'"
    )
    click.echo(f"{path}: {len(table)} rows, checked{note}")


if __name__ == "__main__":
    sys.exit(main())
