"""Groups of commands: imported when they are typed; they fail in one line, without a traceback or a value."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.formatting import HelpFormatter

from privinf.cli.shell_terms import in_shell_terms
from privinf.errors import PrivinfError, PrivinfWarning, UnforeseenError


class Refusal(click.ClickException):
    """The request is refused; nothing was changed, unless the message says so."""

    exit_code = 2


class Failure(click.ClickException):
    """The program itself failed."""

    exit_code = 1


class SafeGroup(click.Group):
    """A group whose commands fail with one line: exit code 2 for refusals, 1 for internal errors."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the requested command."""
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends quietly where the reader of the output has gone
        except UnforeseenError as problem:
            raise Failure(_mistake(problem)) from None
        except PrivinfError as problem:
            raise Refusal(in_shell_terms(str(problem))) from None
        except OSError as problem:
            place = f"{problem.filename}: " if problem.filename else ""
            raise Refusal(f"{place}{problem.strerror or type(problem).__name__}") from None
        except Exception as problem:
            raise Failure(_mistake(problem)) from None


@contextmanager
def _plain_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        show_as_before = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **rest: Any) -> None:
            if issubclass(category, PrivinfWarning):
                click.echo(f"Warning: {in_shell_terms(str(message))}", err=True)
            else:
                show_as_before(message, category, *place, **rest)

        warnings.showwarning = show
        warnings.simplefilter("always", PrivinfWarning)
        yield


def _mistake(problem: BaseException) -> str:
    return (
        f"{type(problem).__name__} at {_place(problem)}: this is a bug in privinf; please "
        "report it. The message of the error is hidden, because it may contain values of rows."
    )


def _place(problem: BaseException) -> str:
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown line"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


class TypedGroup(SafeGroup):
    """A group that imports a command when it is typed: help and completion of names read no other module.

    Parameters
    ----------
    places : mapping of str to (str, str)
        By the command's name: where it is, "module:attribute", and the first sentence of its help.
    """

    def __init__(self, *args: Any, places: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._places = dict(places)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported now; None if there is none of this name."""
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: HelpFormatter) -> None:
        """Write the list of commands."""
        limit = formatter.width - 6 - max(map(len, self._places))
        rows = [
            (name, click.Command(name, help=text).get_short_help_str(limit))
            for name, (_, text) in sorted(self._places.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
