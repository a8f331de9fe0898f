"""The texts that a user can meet: errors, warnings, notes, help of the command line.

``python -m support.messages`` prints how many there are in every room; with a path, the texts there;
with ``--lot 200 --seed 1``, so many drawn by lot, numbered, for somebody to read who has not seen the code.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from support.tree import Module, house_tree

SHORTEST = 4  # words: shorter strings are names, units and headings
HASHED = "wire.py"  # its texts enter digests and files; people read them rendered
NOT_PROSE = ("<", "SUM(", "SELECT", "CASE", "\\")  # HTML, SQL, LaTeX


class Text(NamedTuple):
    """A text of the code: where it stands, and its words with {fields} for what is filled in."""

    path: str
    line: int
    words: str


def _docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of expressions that are docstrings, or strings that stand alone."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _words(node: ast.AST) -> str | None:
    """Return the text of a string, of an f-string, or of strings that are added; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _words(part) or "" if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _words(node.left), _words(node.right)
        if left is not None and right is not None:
            return left + right
    return None


def _texts(node: ast.AST, docstrings: set[int], path: str) -> Iterator[Text]:
    """Yield the texts below a node, each whole: parts of an f-string or of a sum are not yielded again."""
    words = None if id(node) in docstrings else _words(node)
    if words is not None:
        if len(words.split()) >= SHORTEST and not words.lstrip().startswith(NOT_PROSE):
            yield Text(path, node.lineno, " ".join(words.split()))
        return
    for child in ast.iter_child_nodes(node):
        if id(child) not in docstrings:
            yield from _texts(child, docstrings, path)


def texts(modules: list[Module]) -> list[Text]:
    """Return every text of at least `SHORTEST` words outside docstrings, in the order of the code."""
    return [
        text
        for module in modules
        if module.path.name != HASHED
        for text in _texts(module.tree, _docstrings(module.tree), str(module.path))
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print numbers of texts by room, the texts below a path, or a lot of them."""
    parser = argparse.ArgumentParser(description="Texts of the package that a user can meet")
    parser.add_argument("path", nargs="?", help="print the texts of files whose path holds this")
    parser.add_argument("--lot", type=int, default=0, help="number of texts to draw without replacement")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    options = parser.parse_args(arguments)
    modules = house_tree().of("privinf")
    messages = texts(modules)
    if options.lot:
        for number, text in enumerate(random.Random(options.seed).sample(messages, options.lot), 1):
            print(f"{number}. {text.words}")
    elif options.path:
        for text in messages:
            if options.path in text.path:
                print(f"{text.path}:{text.line}: {text.words}")
    else:
        rooms = {str(module.path): module.room for module in modules}
        for room, number in sorted(Counter(rooms[text.path] for text in messages).items()):
            print(f"{room:20} {number:6}")
        print(f"{'privinf':20} {len(messages):6}")


if __name__ == "__main__":
    main()
