"""Records what a run of the tests shows to users: errors, warnings, notes, and lines of the command line.

``PRIVINF_MESSAGES=FOLDER pytest -p support.recorded ...`` writes every text once, with the place in the
code that made it; ``python -m support.recorded FOLDER`` prints how many there are, and with
``--lot 200 --seed 1`` so many drawn by lot, for somebody to read who has not seen the code. A text stands
there as users read it, with its values filled in and its pieces joined; help of commands is added to them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import warnings
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("PRIVINF_MESSAGES")
SHORTEST = 4  # words
NO_REWRAP = "\b"  # click's mark of a paragraph whose lines stay
_PACKAGE = f"{os.sep}privinf{os.sep}"
_TESTS = f"{os.sep}tests{os.sep}"
_seen: dict[tuple[str, str], str] = {}


def plain(text: str) -> str:
    """Return a text without what differs from call to call: numbers, quoted names, paths."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S+|[-+]?\.?\d[\w.,+-]*", "#", " ".join(text.split()))


def _place(depth: int) -> str | None:
    """Return the line of the package that is closest to the caller, or None."""
    frame: Any = sys._getframe(depth)
    while frame is not None:
        name = frame.f_code.co_filename
        if _PACKAGE in name and not name.endswith(("errors.py", "error_boundary.py")):
            return f"privinf/{name.rsplit(_PACKAGE, 1)[1]}:{frame.f_lineno}"
        if _TESTS in name:  # a text of the tests' own
            return None
        frame = frame.f_back
    return None


def record(kind: str, text: str) -> None:
    """Keep a text, if the package made it and it is a sentence."""
    place = _place(3)
    if place and len(text.split()) >= SHORTEST and not text.lstrip().startswith(("{", "[")):
        shown = text if kind == "command" else " ".join(text.split())
        _seen.setdefault((place, plain(text)), f"{kind}: {shown}")


def pytest_configure(config: pytest.Config) -> None:
    """Listen to errors, warnings, notes and to what commands print."""
    import click

    from privinf.errors import PrivinfError, PrivinfWarning
    from privinf.results.notes import Note

    def error(self: PrivinfError, *words: Any) -> None:
        Exception.__init__(self, *words)
        if words and isinstance(words[0], str):
            record("error", words[0])

    PrivinfError.__init__ = error  # type: ignore[method-assign]
    made, echoed, warned = Note.__post_init__, click.echo, warnings.warn

    def note(self: Note) -> None:
        made(self)
        record("note", self.text)

    def echo(message: Any = None, *rest: Any, **options: Any) -> None:
        record("command", str(message))
        echoed(message, *rest, **options)

    def warn(message: Any, category: Any = None, *rest: Any, **options: Any) -> None:
        if isinstance(category, type) and issubclass(category, PrivinfWarning):
            record("warning", str(message))
        options["stacklevel"] = options.get("stacklevel", 1) + 1
        warned(message, category, *rest, **options)

    Note.__post_init__ = note  # type: ignore[method-assign]
    click.echo = echo  # type: ignore[assignment]
    warnings.warn = warn  # type: ignore[assignment]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write a file of what this process recorded."""
    if FOLDER and _seen:
        Path(FOLDER).mkdir(parents=True, exist_ok=True)
        rows = [[place, key, text] for (place, key), text in _seen.items()]
        Path(FOLDER, f"{os.getpid()}.json").write_text(json.dumps(rows))


def _helps() -> Iterator[tuple[str, str, str]]:
    """Yield the help of every command and of its options."""
    import click

    from privinf.cli import main

    def below(command: Any, path: str) -> Iterator[tuple[str, str, str]]:
        yield path, "", f"help of '{path}': {cleandoc((command.help or '').replace(NO_REWRAP, ''))}"
        for option in command.params:
            if getattr(option, "help", None):
                yield path, option.name, f"help of '{path} {option.opts[0]}': {' '.join(option.help.split())}"
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from below(command.get_command(context, name), f"{path} {name}")

    yield from below(main, "privinf")


def recorded(folder: Path, most: int = 3) -> list[tuple[str, str]]:
    """Return place and text of what was recorded, at most so many of one place, and help of commands."""
    rows: dict[tuple[str, str], str] = {}
    for file in sorted(folder.glob("*.json")):
        for place, key, text in json.loads(file.read_text()):
            rows.setdefault((place, key), text)
    places: dict[str, list[str]] = {}
    for (place, _), text in sorted(rows.items()):
        places.setdefault(place, []).append(text)
    shown = [(place, text) for place, texts in places.items() for text in texts[:most]]
    return shown + [(path, text) for path, _, text in _helps()]


def main(arguments: list[str] | None = None) -> None:
    """Print what a path of the code shows, a lot of it, or how much of it there is."""
    parser = argparse.ArgumentParser(description="What users read, as a run of the tests recorded it")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--path", help="print what places show whose path holds this")
    parser.add_argument("--lot", type=int, default=0, help="number of texts to draw without replacement")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    options = parser.parse_args(arguments)
    rows = recorded(options.folder)
    if options.lot:
        for number, (_, text) in enumerate(random.Random(options.seed).sample(rows, options.lot), 1):
            print(f"{number}. {text}")
    elif options.path:
        for place, text in rows:
            if options.path in place:
                print(f"{place}: {text}")
    else:
        print(f"{len(rows)} texts of {len({place for place, _ in rows})} places")


if __name__ == "__main__":
    main()
