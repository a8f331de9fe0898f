"""Sequential and parallel composition over a tree of scopes, and amounts that count against a limit.

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

from privinf.accounting.budget import Budget
from privinf.accounting.composition import ParallelTotal, Total, compose, upper_bound
from privinf.accounting.losses import Loss
from privinf.errors import ArgumentError, BudgetExceededError
from privinf.validation import is_unicode

Scope = tuple[str, ...]
# A reservation: whose it is, and its name.
Part = tuple[str, str]

MAX_WORLDS = 64  # totals that are compared; more are replaced by one upper bound


def scope_component(name: str, disjoint: str | None = None) -> str:
    """Return the path component of a scope; raises ArgumentError for an empty name or one with ``=``."""
    for text in (name,) if disjoint is None else (name, disjoint):
        if not isinstance(text, str) or not text.strip() or "=" in text or not is_unicode(text):
            raise ArgumentError(
                "name= of Ledger.scope() (the name of a part of the ledger) and disjoint= (the name of a "
                "division into disjoint parts) must be non-empty strings of Unicode characters without '='"
            )
    return name if disjoint is None else f"{disjoint}={name}"


def check_scope(scope: Iterable[str]) -> Scope:
    """Return `scope` as a tuple of valid path components."""
    if isinstance(scope, str):
        raise ArgumentError(
            "scope= (the part of a ledger to which an entry belongs) must be a sequence of strings, "
            "not one string"
        )
    path = tuple(scope)
    for component in path:
        if not isinstance(component, str):
            raise ArgumentError("scope= must contain only strings")
        partition, equals, name = component.rpartition("=")
        scope_component(name, partition if equals else None)
    return path


def partition_of(component: str) -> str | None:
    """Return the partition that a component is a class of, None for a sequential part."""
    partition, equals, _ = component.rpartition("=")
    return partition if equals else None


@dataclass(slots=True)
class ScopeNode:
    """One scope: the amount spent in it directly (exact, in the limit's currency) and its parts."""

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
            partition = partition_of(component)
            cost = child.cost()
            if partition is None:
                total += cost
            else:
                groups[partition] = max(groups[partition], cost)
        return total + sum(groups.values())

    def slack(self, scope: Scope) -> Fraction:
        """Return the amount that `scope` could spend at no charge, because parallel classes cost more."""
        free = Fraction(0)
        node = self
        for component in scope:
            partition = partition_of(component)
            child = node.children.get(component, ScopeNode())
            if partition is not None:
                costs = (c.cost() for name, c in node.children.items() if partition_of(name) == partition)
                free += max(costs, default=Fraction(0)) - child.cost()
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


def cost_of(budget: Budget, spends: Iterable[tuple[Scope, Loss]]) -> Fraction:
    """Return the cost of releases for the unit with the largest loss, in the currency of a budget."""
    root = ScopeNode()
    for scope, loss in spends:
        root.descend(scope).spent += budget.cost(loss)
    return root.cost()


def _cross(first: list[Total], second: list[Total]) -> list[Total]:
    return _prune([a + b for a in first for b in second])


def _prune(totals: list[Total]) -> list[Total]:
    """Drop totals that another total covers; too many incomparable ones are replaced by one bound."""
    worlds: list[Total] = []
    for total in totals:
        if not any(world.dominates(total) for world in worlds):
            worlds = [world for world in worlds if not total.dominates(world)] + [total]
    return worlds if len(worlds) <= MAX_WORLDS else [reduce(upper_bound, worlds)]


class Tally:
    """Amounts that count against one limit: charges, and reserved amounts.

    Parameters
    ----------
    budget : Budget
    whose : str
        Owner of the limit, for messages.

    Notes
    -----
    **Privacy.** A reservation r holds a price R_r of the limit B for charges D_r that are still to come, each
    chosen in the light of all earlier answers. With c the exact cost of a tree of scopes, in a currency that
    adds up, what counts is

        ``c(all other charges) + sum over r of max(R_r, c(D_r)) <= B``,

    checked before every charge and every reservation. As c is subadditive (a sum over parts, a maximum over
    the classes of a partition), all charges cost at most that, at every time. So the charges are cut
    off by a filter at B, and a filter in mu^2, rho or pure epsilon bounds the loss of fully adaptive
    queries by B itself, however their number and order are decided: released answers and the
    time of day may [1]_ [2]_ [3]_. Hence what is reserved and not charged costs nothing, may be given back
    at any time, and was never spent. And the promise holds: a charge on r with c(D_r) <= R_r moves nothing
    that counts, and is never refused for the limit.

    References
    ----------
    .. [1] Rogers, Roth, Ullman and Vadhan (2016), Privacy odometers and filters: pay-as-you-go composition.
    .. [2] Whitehouse, Ramdas, Rogers and Wu (2023), Fully-adaptive composition in differential privacy.
    .. [3] Smith and Thakurta (2022), Fully adaptive composition for Gaussian differential privacy.
    """

    __slots__ = ("_charges", "_free", "_reserved", "budget", "whose")

    def __init__(self, budget: Budget, whose: str) -> None:
        self.budget = budget
        self.whose = whose
        self._free = ScopeNode()
        self._charges: dict[Part, list[tuple[Scope, Fraction]]] = {}
        self._reserved: dict[Part, tuple[Fraction, ScopeNode]] = {}

    @property
    def cost(self) -> Fraction:
        """Amounts that count: charges, and reserved amounts beyond them."""
        reserved = (max(amount, node.cost()) for amount, node in self._reserved.values())
        return sum(reserved, start=self._free.cost())

    @property
    def spent(self) -> Fraction:
        """The charges, without reserved amounts."""
        reserved = {part: amount for part, (amount, _) in self._reserved.items()}
        for part in reserved:
            self.free(part)
        cost = self._free.cost()
        for part, amount in reserved.items():
            self._open(part, amount)
        return cost

    def remaining(self, scope: Scope = ()) -> Fraction:
        """Return the amount that may still be spent at `scope`, in addition to reserved amounts."""
        return self.budget.limit - self.cost + self._free.slack(scope)

    def add(self, spends: Iterable[tuple[Scope, Loss]], on: Part | None = None) -> None:
        """Count an amount that was charged, with or without a reservation; facts pass no limit check."""
        self._keep([(scope, self.budget.cost(loss)) for scope, loss in spends], on)

    def charge(
        self, spends: Iterable[tuple[Scope, Loss]], subject: str, on: Part | None = None, *, keep: bool = True
    ) -> None:
        """Count an amount to be charged, unless this is only a check or the amount exceeds the limit.

        Raises BudgetExceededError where it does; `subject` names it.
        """
        costs = [(scope, self.budget.cost(loss)) for scope, loss in spends]
        node = self._node(on)
        _place(costs, node, 1)
        exceeded = self.cost > self.budget.limit
        _place(costs, node, -1)
        if exceeded:
            raise self._refusal(subject, sum((cost for _, cost in costs), start=Fraction(0)))
        if keep:
            self._keep(costs, on)

    def hold(self, part: Part, losses: Iterable[Loss], subject: str = "") -> None:
        """Set the total amount of a reservation for all its charges; the latest call counts.

        Raises BudgetExceededError where that would pass the limit, and nothing has changed then; `subject`
        names it. Without `subject` it is a fact, and no limit is checked.
        """
        amount = sum(map(self.budget.cost, losses), start=Fraction(0))
        before = self._reserved.get(part)
        self._open(part, amount)
        if subject and self.cost > self.budget.limit:
            self.free(part)
            if before is not None:
                self._open(part, before[0])
            raise self._refusal(subject, amount)

    def free(self, part: Part) -> None:
        """Return the uncharged amount of a reservation; nothing if it holds nothing."""
        if self._reserved.pop(part, None) is not None:
            _place(self._charges.get(part, ()), self._free, 1)

    def _open(self, part: Part, amount: Fraction) -> None:
        """Set the amount of a reservation; earlier charges on it count as part of it."""
        self.free(part)
        charges = self._charges.get(part, ())
        node = ScopeNode()
        _place(charges, self._free, -1)
        _place(charges, node, 1)
        self._reserved[part] = amount, node

    def _node(self, on: Part | None) -> ScopeNode:
        return self._free if on is None or on not in self._reserved else self._reserved[on][1]

    def _keep(self, costs: list[tuple[Scope, Fraction]], on: Part | None) -> None:
        _place(costs, self._node(on), 1)
        if on is not None:
            self._charges.setdefault(on, []).extend(costs)

    def _refusal(self, subject: str, amount: Fraction) -> BudgetExceededError:
        remaining = self.budget.described(max(self.budget.limit - self.cost, Fraction(0)))
        reserved = " after the amounts reserved for running fits are subtracted" if self._reserved else ""
        adding = f" ({self.budget.adding})" if self.cost > 0 and self.budget.adding else ""
        return BudgetExceededError(
            f"{subject} would exceed the limit of {self.whose}, {self.budget}: the cost is "
            f"{self.budget.described(amount)}, but only {remaining} is left{reserved}{adding}; nothing was "
            "recorded or released. Use a smaller budget"
        )


def _place(costs: Iterable[tuple[Scope, Fraction]], node: ScopeNode, sign: int) -> None:
    for scope, cost in costs:
        node.descend(scope).spent += sign * cost
