"""Files that a command writes: never over another by accident, never half."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from privinf.errors import ArgumentError

Command = TypeVar("Command", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)


def overwrite_option(command: Command) -> Command:
    """Give a command the option --overwrite."""
    return click.option("--overwrite", is_flag=True, help="Replace the output if it is there.")(command)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise ArgumentError if a file stands at `path`, or no file can; before any work is done."""
    if not path.parent.is_dir():
        raise ArgumentError(f"{path.parent} is no folder: make it, or choose another place for {path.name}")
    if not os.access(path.parent, os.W_OK):
        raise ArgumentError(f"{path.parent} cannot be written to: choose another place for {path.name}")
    if path.exists() and not overwrite:
        raise ArgumentError(f"{path} is there already: choose another name, or replace it with --overwrite")


def write_text(path: Path, text: str) -> None:
    """Write a text file as a whole."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
