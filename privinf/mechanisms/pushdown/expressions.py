"""Expressions of SQL that agree with numpy's doubles to the bit, and the layers of their query.

Each operation is one IEEE operation, or a CASE. An expression knows between which doubles its values are, by
the same operation at the ends of its operands, which is right since rounding keeps order. So none can be
nan, and infinity is only ever a quotient from which a smaller number is chosen: what could be something else
raises NotAvailableError. The sign of 0 is not kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

from privinf.mechanisms.pushdown.databases import Dialect, Layer, unfit
from privinf.typing import Floats


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """An expression: pieces of its text and the expressions between them, with the bounds of its values."""

    parts: tuple[str | Node, ...]
    low: float
    high: float
    away: float
    whole: Node | None = None
    kind: str = "made"

    @property
    def known(self) -> bool:
        """Whether there is one value alone."""
        return self.low == self.high

    @property
    def longest(self) -> float:
        """The largest size of a value."""
        return max(abs(self.low), abs(self.high))


class Expressions:
    """Makes expressions of one database, each of them once."""

    __slots__ = ("_nodes", "columns", "dialect")

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.columns = dict[str, str]()
        self._nodes: dict[tuple[Any, ...], Node] = {}

    def node(
        self,
        parts: Sequence[str | Node],
        low: float,
        high: float,
        *,
        away: float = 0.0,
        whole: Node | None = None,
        kind: str = "made",
        finite: bool = True,
    ) -> Node:
        """Return the expression of these parts; NotAvailableError if it could be infinite, and must not."""
        if finite and not (math.isfinite(low) and math.isfinite(high)):
            raise unfit("a number in the query could be infinite")
        away = max(away, low, -high, 0.0)
        return self._nodes.setdefault(
            tuple(parts), Node(parts=tuple(parts), low=low, high=high, away=away, whole=whole, kind=kind)
        )

    def number(self, value: float) -> Node:
        """Return a constant."""
        value = float(value)
        return self.node((self.dialect.number(value),), value, value, kind="constant", finite=False)

    def column(self, text: str, low: float, high: float) -> Node:
        """Return a column of the layer below, of doubles, that has this text there."""
        name = self.columns.setdefault(text, f"_x{len(self.columns)}")
        return self.number(low) if low == high else self.node((name,), low, high, kind="column")

    def form(self, weights: Floats, nodes: Sequence[Node]) -> Node:
        """Return the sum of integers times integers, which is exact in any order."""
        used = [(float(w), node) for w, node in zip(weights, nodes, strict=True) if w != 0.0]
        if not used:
            return self.number(0.0)
        parts: list[str | Node] = []
        for w, node in used:
            parts += [" + " if parts else "", node, f" * {self.dialect.number(w)}"]
        ends = [sorted((w * node.low, w * node.high)) for w, node in used]
        return self.node(parts, sum(low for low, _ in ends), sum(high for _, high in ends))

    def looked_up(self, index: Node, table: Floats) -> Node:
        """Return the number of a table at a place."""
        start = max(int(index.low), 0)
        end = min(int(index.high), len(table) - 1)
        entries = table[start : end + 1]
        before, after = self.dialect.integer("\0").split("\0")
        place = self.node((before, index, f"{after} - {start}"), 0, end - start)
        if self.dialect.table:
            before, after = self.dialect.table.format(",".join(map(repr, entries.tolist())), "\0").split("\0")
            parts: list[str | Node] = [before, place, after]
        else:
            parts = self._ladder(entries, place)
        return self.node(parts, float(entries.min()), float(entries.max()))

    def _ladder(self, values: Floats, place: Node, start: int = 0) -> list[str | Node]:
        """Return the parts of a CASE of halves."""
        if len(values) == 1:
            return [self.dialect.number(values[0])]
        half = len(values) // 2
        below = values[:half]
        above = values[half:]
        return [
            "CASE WHEN ",
            place,
            f" < {start + half} THEN ",
            *self._ladder(below, place, start),
            " ELSE ",
            *self._ladder(above, place, start + half),
            " END",
        ]

    # ---- numpy's operations

    def add(self, a: Node, b: Node) -> Node:
        """Return a + b."""
        for first, second in ((a, b), (b, a)):
            if first.known and first.low == 0.0:
                return second
        return self.node((a, " + ", b), a.low + b.low, a.high + b.high)

    def subtract(self, a: Node, b: Node) -> Node:
        """Return a - b."""
        if b.known and b.low == 0.0:
            return a
        low, high = (0.0, 1.0) if b.whole is a else (a.low - b.high, a.high - b.low)
        return self.node((a, " - ", b), low, high)

    def multiply(self, a: Node, b: Node) -> Node:
        """Return a b."""
        for first, second in ((a, b), (b, a)):
            if first.known and first.low in (0.0, 1.0):
                return second if first.low == 1.0 else first
        ends = [x * y for x, y in product((a.low, a.high), (b.low, b.high))]
        low = max(min(ends), 0.0) if a is b else min(ends)
        return self.node((a, " * ", b), a.away * a.away if a is b else low, max(ends), away=a.away * b.away)

    def divide(self, a: Node, b: Node) -> Node:
        """Return a / b; infinity where a positive number is divided by 0."""
        if b.known and b.low == 1.0:
            return a
        if b.away > 0.0:
            ends = [x / y for x in (a.low, a.high) for y in (b.low, b.high) if abs(y) >= b.away]
            if b.low < 0.0 < b.high:
                ends = [side * max(abs(a.low), abs(a.high)) / b.away for side in (-1.0, 1.0)]
            return self.node((a, " / ", b), min(ends), max(ends))
        if not (a.low > 0.0 <= b.low):
            raise unfit("the query could divide by zero")
        infinity = self.number(math.inf)
        if b.known:
            return infinity
        parts = (
            "CASE WHEN ",
            b,
            f" > {self.dialect.number(0.0)} THEN ",
            a,
            " / ",
            b,
            " ELSE ",
            infinity,
            " END",
        )
        return self.node(parts, a.low / b.high, math.inf, finite=False)

    def sqrt(self, a: Node) -> Node:
        """Return the square root."""
        if not a.low >= 0.0:
            raise unfit("the query could take the square root of a negative number")
        return self.node(("SQRT(", a, ")"), math.sqrt(a.low), math.sqrt(a.high))

    def floor(self, a: Node) -> Node:
        """Return the largest integer up to a."""
        return self.node(("FLOOR(", a, ")"), math.floor(a.low), math.floor(a.high), whole=a)

    def trunc(self, a: Node) -> Node:
        """Return a, cut toward zero."""
        return self.copysign(self.floor(self.absolute(a)), a)

    def absolute(self, a: Node) -> Node:
        """Return |a|."""
        if a.low >= 0.0:
            return a
        return self.node(("ABS(", a, ")"), a.away, max(-a.low, a.high))

    def copysign(self, a: Node, b: Node) -> Node:
        """Return |a| with the sign of b, + of 0."""
        size = self.absolute(a)
        minus = self.node(("-", size), -size.high, -size.low)
        result = self.where(self.less(b, self.number(0.0)), minus, size)
        return self.node(result.parts, result.low, result.high, away=size.low)

    def minimum(self, a: Node, b: Node) -> Node:
        """Return the smaller of two."""
        return self._chosen(a, " <= ", b, min)

    def maximum(self, a: Node, b: Node) -> Node:
        """Return the larger of two."""
        return self._chosen(a, " >= ", b, max)

    def _chosen(self, a: Node, sign: str, b: Node, choose: Callable[..., Any]) -> Node:
        if a.high <= b.low or b.high <= a.low:
            return cast("Node", choose(a, b, key=lambda node: (node.low, node.high)))
        parts = "CASE WHEN ", a, sign, b, " THEN ", a, " ELSE ", b, " END"
        return self.node(parts, choose(a.low, b.low), choose(a.high, b.high))

    def where(self, test: Node, a: Node, b: Node) -> Node:
        """Return a where a condition holds, else b."""
        if test.known:
            return a if test.low else b
        parts = "CASE WHEN ", test, " THEN ", a, " ELSE ", b, " END"
        return self.node(parts, min(a.low, b.low), max(a.high, b.high), away=min(a.away, b.away))

    def less(self, a: Node, b: Node) -> Node:
        """Return a < b."""
        return self._test((a, " < ", b), always=a.high < b.low, never=a.low >= b.high)

    def less_equal(self, a: Node, b: Node) -> Node:
        """Return a <= b."""
        return self._test((a, " <= ", b), always=a.high <= b.low, never=a.low > b.high)

    def chosen(self, a: Node, test: Node) -> Node:
        """Return a, of rows that meet a condition: at least b where it is b < a."""
        if test.parts[1:] != (" < ", a):
            return a
        lower = cast("Node", test.parts[0])
        parts = "CASE WHEN ", test, " THEN ", a, " ELSE ", lower, " END"
        return self.node(parts, max(a.low, lower.low), a.high)

    def _test(self, parts: Sequence[str | Node], *, always: bool, never: bool) -> Node:
        constant = self.number(float(always))
        return constant if always or never else self.node(parts, 0.0, 1.0, kind="condition")


# ---- layers


def layers_of(roots: Sequence[Node], passthrough: Sequence[str]) -> tuple[list[Layer], Mapping[Node, str]]:
    """Return layers in which expressions become columns, once each, and the texts of `roots` above them.

    `passthrough` are columns of the layer below that go all the way up.
    """
    order = list(dict.fromkeys(node for root in roots for node in _below(root)))
    uses = Counter(root for root in roots for _ in range(2))
    for node in order:
        for part in _inner(node):
            uses[part] += 2 if node.kind == "condition" else 1
    stands = {node for node in order if node.kind == "made" and uses[node] > 1}
    names = {node: f"_n{place}" for place, node in enumerate(order) if node in stands}
    level = dict[Node, int]()
    texts = dict[Node, str]()
    needs = dict[Node, set[Node]]()
    for node in order:
        stand = [
            {inner} if inner in stands or inner.kind == "column" else needs[inner] for inner in _inner(node)
        ]
        needs[node] = set().union(*stand)
        texts[node] = "".join(
            part if isinstance(part, str) else _text_of(part, names, texts) for part in node.parts
        )
        level[node] = max((level[inner] for inner in needs[node]), default=0) + (node in stands)
    top = max((level[node] for node in roots), default=0)
    last = dict.fromkeys(order, 0)
    for node in [*stands, *roots]:
        for inner in needs[node]:
            last[inner] = max(last[inner], level[node])
    for root in roots:
        last[root] = top + 1
    layers = list[Layer]()
    carried = [node for node in order if node in stands or node.kind == "column"]
    for depth in range(1, top + 1):
        layer = list(passthrough)
        for node in carried:
            if node in stands and level[node] == depth:
                layer.append(f"{texts[node]} AS {names[node]}")
            elif level[node] < depth < last[node]:
                layer.append(names.get(node, texts[node]))
        layers.append(layer)
    return layers, {root: _text_of(root, names, texts) for root in roots}


def _text_of(node: Node, names: Mapping[Node, str], texts: Mapping[Node, str]) -> str:
    if node in names:
        return names[node]
    return texts[node] if node.kind in ("column", "constant") else f"({texts[node]})"


def _below(root: Node) -> Iterator[Node]:
    """Yield an expression after all that it is made of."""
    stack = [(root, False)]
    visited = set[Node]()
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in visited:
            visited.add(node)
            stack.append((node, True))
            stack += [(part, False) for part in _inner(node)]


def _inner(node: Node) -> list[Node]:
    return [part for part in node.parts if isinstance(part, Node)]
