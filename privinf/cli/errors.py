"""Errors as a line on stderr: no traceback, no value of a row."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from privinf.errors import PrivinfError, PrivinfWarning, UnforeseenError


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
