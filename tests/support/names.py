"""How many bound names are function words: `found`, `told`, `one` say nothing of the value that they hold.

``python -m support.names`` prints the share for the package and for every folder; with a path it lists the
names there.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator

from support.tree import Module, house_tree

# Participles, pronouns and quantities: what happened to a value, or how much of it there is, not what it is.
WORDS = frozenset(
    {
        "again",
        "anew",
        "asked",
        "begun",
        "beside",
        "beyond",
        "both",
        "brought",
        "done",
        "each",
        "elsewhere",
        "every",
        "few",
        "found",
        "given",
        "gone",
        "held",
        "here",
        "how",
        "kept",
        "known",
        "least",
        "left",
        "made",
        "many",
        "meant",
        "met",
        "more",
        "most",
        "much",
        "one",
        "other",
        "others",
        "own",
        "put",
        "read",
        "said",
        "seen",
        "sent",
        "shown",
        "some",
        "stated",
        "such",
        "taken",
        "that",
        "there",
        "these",
        "this",
        "those",
        "told",
        "wanted",
        "what",
        "where",
        "which",
        "whole",
        "why",
    }
)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (name, line) of what a text binds: parameters, variables, functions, classes, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def is_vague(name: str) -> bool:
    """Return whether a name, leading underscores aside, is one of `WORDS`."""
    return name.strip("_").lower() in WORDS


def shares(modules: list[Module]) -> dict[str, tuple[int, int]]:
    """Return vague and all bound names of every room, and of the package under ""."""
    vague: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for module in modules:
        for name, _ in bound_names(module.tree):
            for room in {"", module.room}:
                every[room] += 1
                vague[room] += is_vague(name)
    return {room: (vague[room], every[room]) for room in sorted(every)}


def main(arguments: list[str]) -> None:
    """Print shares of rooms, or the vague names below a path."""
    modules = house_tree().of("privinf")
    if arguments:
        for module in modules:
            if arguments[0] in str(module.path):
                for name, line in bound_names(module.tree):
                    if is_vague(name):
                        print(f"{module.path}:{line}: {name}")
        return
    for room, (vague, every) in shares(modules).items():
        print(f"{room or 'privinf':20} {vague:6} of {every:6} {vague / every:7.2%}")


if __name__ == "__main__":
    main(sys.argv[1:])
