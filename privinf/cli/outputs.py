"""What every command does with files and errors: no file overwritten or left half, no traceback, no value."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from privinf.errors import ArgumentError, PrivinfError, PrivinfWarning, UnforeseenError
from privinf.sealed import written_whole

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
    with written_whole(path) as stream:
        stream.write(text.encode())


class Refusal(click.ClickException):
    """What was asked is refused; nothing was changed, unless the message says so."""

    exit_code = 2


class Failure(click.ClickException):
    """The program itself failed."""

    exit_code = 1


class SafeGroup(click.Group):
    """A group whose commands fail with one line: code 2 for what is refused, 1 for our own mistakes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except UnforeseenError as problem:
            raise Failure(_mistake(problem)) from None
        except PrivinfError as problem:
            raise Refusal(str(problem)) from None
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            raise Refusal(f"{where}{problem.strerror or type(problem).__name__}") from None
        except Exception as problem:
            raise Failure(_mistake(problem)) from None


@contextmanager
def _plain_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **rest: Any) -> None:
            if issubclass(category, PrivinfWarning):
                click.echo(f"Warning: {message}", err=True)
            else:
                shown(message, category, *place, **rest)

        warnings.showwarning = show
        warnings.simplefilter("always", PrivinfWarning)
        yield


def _mistake(problem: BaseException) -> str:
    return (
        f"{type(problem).__name__} at {_place(problem)}: a mistake in privinf, please report it. Its text is "
        "not shown, because it may quote rows."
    )


def _place(problem: BaseException) -> str:
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown line"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
