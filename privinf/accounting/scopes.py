"""Sequential and parallel composition over a tree of scopes.

A scope is a path of components. ``"fold 1"`` is a plain part of the work: its cost adds up with everything
around it. ``"site=A"`` is one class of a partition named ``site``: the classes hold different units, so only
the dearest of them counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce

from privinf.accounting.composition import ParallelTotal, Total, compose, upper_bound
from privinf.accounting.losses import Loss
from privinf.errors import ArgumentError

Scope = tuple[str, ...]

MAX_WORLDS = 64


def scope_component(name: str, disjoint: str | None = None) -> str:
    """Return the path component of a scope; raises ArgumentError for an empty name or one with ``=``."""
    for text in (name,) if disjoint is None else (name, disjoint):
        if not isinstance(text, str) or not text.strip() or "=" in text:
            raise ArgumentError("a scope's name and its partition are non-empty texts without '='")
    return name if disjoint is None else f"{disjoint}={name}"


def check_scope(scope: Iterable[str]) -> Scope:
    """Return `scope` as a tuple of valid path components."""
    if isinstance(scope, str):
        raise ArgumentError("scope is a sequence of path components, not one text")
    path = tuple(scope)
    for component in path:
        if not isinstance(component, str):
            raise ArgumentError("scope holds texts only")
        partition, equals, name = component.rpartition("=")
        scope_component(name, partition if equals else None)
    return path


def partition_of(component: str) -> str | None:
    """Return the partition that a component is a class of, None for a sequential part."""
    partition, equals, _ = component.rpartition("=")
    return partition if equals else None


@dataclass(slots=True)
class ScopeNode:
    """One scope: what was spent in it directly (exact, in the limit's currency) and its parts."""

    spent: Fraction = Fraction(0)
    losses: list[Loss] = field(default_factory=list)
    children: dict[str, ScopeNode] = field(default_factory=dict)

    def descend(self, scope: Scope) -> ScopeNode:
        """Return the node at `scope` below this one, made if it is not there."""
        node = self
        for component in scope:
            node = node.children.setdefault(component, ScopeNode())
        return node

    def cost(self) -> Fraction:
        """Return the cost for the dearest unit: sums over parts, maxima over the classes of a partition."""
        groups: dict[str, Fraction] = defaultdict(Fraction)
        total = self.spent
        for component, child in self.children.items():
            partition, cost = partition_of(component), child.cost()
            if partition is None:
                total += cost
            else:
                groups[partition] = max(groups[partition], cost)
        return total + sum(groups.values())

    def slack(self, scope: Scope) -> Fraction:
        """Return how much could be spent at `scope` at no charge, because dearer classes stand beside it."""
        free, node = Fraction(0), self
        for component in scope:
            partition = partition_of(component)
            child = node.children.get(component, ScopeNode())
            if partition is not None:
                beside = (c.cost() for name, c in node.children.items() if partition_of(name) == partition)
                free += max(beside, default=Fraction(0)) - child.cost()
            node = child
        return free

    def total(self) -> Total | ParallelTotal:
        """Return the joint loss of the worst placed unit."""
        worlds = self._worlds()
        return worlds[0] if len(worlds) == 1 else ParallelTotal(tuple(worlds))

    def _worlds(self) -> list[Total]:
        worlds = [compose(self.losses)]
        groups: dict[str, list[Total]] = defaultdict(list)
        for component, child in self.children.items():
            partition = partition_of(component)
            if partition is None:
                worlds = _cross(worlds, child._worlds())
            else:
                groups[partition] += child._worlds()
        for alternatives in groups.values():
            worlds = _cross(worlds, _prune(alternatives))
        return worlds


def total_of(spends: Iterable[tuple[Scope, Loss]]) -> Total | ParallelTotal:
    """Return the joint loss of releases, each with the scope in which it was made."""
    root = ScopeNode()
    for scope, loss in spends:
        root.descend(scope).losses.append(loss)
    return root.total()


def _cross(first: list[Total], second: list[Total]) -> list[Total]:
    return _prune([a + b for a in first for b in second])


def _prune(totals: list[Total]) -> list[Total]:
    """Drop what another total covers; too many incomparable ones are replaced by one bound."""
    kept: list[Total] = []
    for total in totals:
        if not any(other.dominates(total) for other in kept):
            kept = [other for other in kept if not total.dominates(other)] + [total]
    return kept if len(kept) <= MAX_WORLDS else [reduce(upper_bound, kept)]
