"""Counts of the suite: tests by the command that runs them, and among them audits and mutants.

``python tests/support/suite.py`` (``make count``) prints a table. A test is an audit if it, or a function
or table that it uses, comes to one of `INSTRUMENTS`; it is a mutant if it comes to a `Mutant`, or if it is an
audit that asserts a fault: that a bound is exceeded, or that the audit does not pass.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# What an audit measures with: bounds on the loss, farthest pairs of tables, releases that are replayed.
INSTRUMENTS = {
    "audit_mechanism",
    "lower_bounds",
    "search_sensitivity",
    "tradeoff_mu",
    "complaints",
    "observe",
}
# The mark that decides which command runs a test; the first that it has.
COMMANDS = {"slow": "make verify", "timing": "make audit, alone", "audit": "make audit", "": "make test"}
ASSERTS_A_FAULT = re.compile(r"assert (?!not\b)[^\n]*\bexceeded\b|assert not [^\n]*\bpassed\b|\.blind\b")
MUTANT = "Mutant"

Names = dict[str, set[str]]
FUNCTION = ast.FunctionDef | ast.ClassDef


def imported_in(tree: ast.Module, helpers: set[str]) -> dict[str, str]:
    """Return the names that a file imports: those of files that help tests as "file.name", others plainly."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = str(node.module).rpartition(".")[2]
            for one in node.names:
                found[one.asname or one.name] = f"{module}.{one.name}" if module in helpers else one.name
    return found


def mentioned(node: ast.AST, meaning: dict[str, str]) -> set[str]:
    """Return what a piece of code mentions: names, and what it takes of other files by an attribute."""
    names = {meaning.get(one.id, one.id) for one in ast.walk(node) if isinstance(one, ast.Name)}
    return names | {
        f"{meaning.get(one.value.id, one.value.id).rpartition('.')[2]}.{one.attr}"
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
    }


def definitions(path: Path, helpers: set[str]) -> Names:
    """Return what each function, class and constant of a file mentions, by "file.name"."""
    tree = ast.parse(path.read_text())
    defined: dict[str, list[ast.AST]] = defaultdict(list)
    for node in tree.body:
        if isinstance(node, FUNCTION):
            defined[node.name].append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name):
                        defined[one.id].append(node)
    meaning = imported_in(tree, helpers) | {name: f"{path.stem}.{name}" for name in defined}
    return {
        f"{path.stem}.{name}": set().union(*(mentioned(node, meaning) for node in nodes))
        for name, nodes in defined.items()
    }


def reached(start: Iterable[str], graph: Names) -> set[str]:
    """Return all names that some names come to."""
    seen: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += graph.get(name, ())
    return seen


class Collected:
    """Takes the tests that pytest collects."""

    items: list[pytest.Item]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def collected(arguments: list[str]) -> list[pytest.Item]:
    """Return the tests that pytest collects."""
    plugin = Collected()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-q", *arguments], plugins=[plugin])
    return plugin.items


class Kinds:
    """Tells audits and mutants from other tests, by the text of the files."""

    def __init__(self) -> None:
        files = list(TESTS.rglob("*.py"))
        self._graph: Names = {}
        for path in files:
            self._graph |= definitions(path, {one.stem for one in files})

    @functools.cache  # noqa: B019 (it lives as long as the script)
    def texts(self, path: Path) -> dict[str, str]:
        """Return the functions of a file as they are written."""
        source = path.read_text()
        tops = [node for node in ast.parse(source).body if isinstance(node, FUNCTION)]
        return {node.name: ast.get_source_segment(source, node) or "" for node in tops}

    @functools.cache  # noqa: B019
    def of(self, path: Path, name: str, fixtures: tuple[str, ...]) -> str:
        """Return the kind of a test: "audits", "mutants" or nothing."""
        names = reached([f"{path.stem}.{one}" for one in (name, *fixtures)], self._graph)
        if any(one.rpartition(".")[2] == MUTANT for one in names):
            return "mutants"
        if not any(one.rpartition(".")[2] in INSTRUMENTS for one in names):
            return ""
        return "mutants" if ASSERTS_A_FAULT.search(self.texts(path).get(name, "")) else "audits"


def counted(items: list[pytest.Item]) -> dict[str, Counter[str]]:
    """Return the number of tests, audits and mutants of each command."""
    kinds = Kinds()
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for item in items:
        command = COMMANDS[next((mark for mark in COMMANDS if mark and item.get_closest_marker(mark)), "")]
        found[command]["tests"] += 1
        if item.path.is_relative_to(TESTS) and item.path.name.startswith("test_"):
            name = item.nodeid.split("::")[1].split("[")[0]
            kind = kinds.of(item.path, name, tuple(getattr(item, "fixturenames", ())))
            found[command][kind] += 1
    return found


def table(found: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counts as a table of Markdown."""
    counts = {command: Counter(found.get(command, {})) for command in COMMANDS.values()}
    kinds = ("tests", "audits", "mutants")
    lines = ["| | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for command in reversed(COMMANDS.values()):
        lines.append(f"| {command} | " + " | ".join(f"{counts[command][kind]:,}" for kind in kinds) + " |")
    whole = sum(counts.values(), Counter())
    return "\n".join([*lines, "| all | " + " | ".join(f"{whole[kind]:,}" for kind in kinds) + " |"])


if __name__ == "__main__":
    root = TESTS.parent
    paths = sys.argv[1:] or [str(root / name) for name in ("tests", "privinf", "studies")]
    print(table(counted(collected(["--rootdir", str(root), *paths]))))
