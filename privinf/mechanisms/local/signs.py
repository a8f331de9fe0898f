"""One sign from each machine: randomized responses about many coordinates for an untrusted server.

A machine answers about one coordinate, chosen without any data, with the sign of its
mean there through randomized response. Whatever its rows are, that answer is epsilon-DP for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, Released
from privinf.accounting.ledger import check_ledger
from privinf.accounting.released import appended
from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, ArgumentError, SchemaError
from privinf.mechanisms.local.responses import RandomizedResponse
from privinf.noise import get_source
from privinf.typing import ArrayLike, Floats, Integers, RngLike, SourceName
from privinf.validation import as_generator, check_count
from privinf.wire import Assumptions, Labels


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SignAnswers(Released):
    """Messages that the server receives.

    Attributes
    ----------
    coordinates : ndarray of int, shape (m,)
        Coordinate about which each machine answered; public.
    answers : ndarray of int, shape (m,)
        1 for a positive sign, 0 for a negative one, after randomized response.
    sizes : ndarray of int, shape (m,)
        Rows of each machine; public.
    p : int
    lie : float
        Probability that an answer is not the sign.
    epsilon : float
    entries : tuple of LedgerEntry
        One line: machines hold different units, and each answers once.
    """

    coordinates: Integers
    answers: Integers
    sizes: Integers
    p: int
    lie: float
    epsilon: float
    entries: tuple[LedgerEntry, ...]

    def __repr__(self) -> str:
        return f"<SignAnswers of {len(self.answers)} sites, {self.p} coordinates{appended(self.stamp)}>"


@error_boundaries
@dataclass(frozen=True, slots=True)
class SignChannel:
    r"""The sign of one coordinate's mean, through randomized response.

    Parameters
    ----------
    epsilon : float
        Pure epsilon for everything that a machine holds; infinity answers in clear.

    Notes
    -----
    **Privacy.** Local: the server is not trusted. Neighbors differ in **all** rows of one machine, so that
    the guarantee holds for one row too; nothing is assumed of the rows. The answer about the chosen
    coordinate is epsilon-DP, and one answer is all that leaves a machine: signs of all p coordinates at
    epsilon/p each would have p^2 instead of p in the variance.

    The debiased answer ``(2 z - 1)/(1 - 2 lie)`` has mean ``2 P(sign > 0) - 1`` and variance at most
    ``coth^2(epsilon/2)``; p coordinates share m machines, so that a coordinate's mean answer has variance
    ``p coth^2(epsilon/2)/m``.

    References
    ----------
    "Differentially private federated learning: servers trustworthiness, estimation, and statistical
    inference" (docs/papers.md), section 3. Acharya, Canonne and Tyagi (2020), "Inference under information
    constraints II".

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal([0.5, 0.0], 1.0, (400, 9, 2))
    >>> sent = SignChannel(1.0).release(rows, rng=0, public_seed=0)
    >>> np.bincount(sent.coordinates).tolist(), sorted(set(sent.answers.tolist()))
    ([200, 200], [0, 1])
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", RandomizedResponse(2, self.epsilon).epsilon)

    def release(
        self,
        samples: Sequence[ArrayLike] | Floats,
        *,
        public_seed: RngLike = None,
        ledger: Ledger | None = None,
        rng: RngLike = None,
        source: SourceName = "lattice",
    ) -> SignAnswers:
        """Query every machine about one coordinate and return the answers.

        Parameters
        ----------
        samples : sequence of m arrays of shape (n_i, p), or array of shape (m, n, p)
            The rows of each machine.
        public_seed : None, int or Generator
            Of the choice of coordinates, which is public and no noise.
        ledger : Ledger, optional
            Of one machine: it is charged once.
        rng, source
            Seeded simulation noise, or the secure source.

        Raises
        ------
        SchemaError, AlignmentError
            Rows are not finite numbers, or machines differ in their columns; nothing is spent then.
        BudgetExceededError
        """
        account = check_ledger(ledger)
        noise = get_source(rng=rng, source=source)
        response = RandomizedResponse(2, self.epsilon)
        entry = response.entry(
            noise,
            label=Labels.SIGN,
            unit="machine",
            assumptions=(Assumptions.PUBLIC_MACHINES, Assumptions.PUBLIC_COORDINATE),
        )
        account.check(entry.loss)
        machines = _machines(samples)
        p = machines[0].shape[1]
        coordinates = assign_coordinates(len(machines), p, public_seed)
        with np.errstate(over="ignore", invalid="ignore"):
            pairs = zip(machines, coordinates.tolist(), strict=True)
            signs = np.array([mean_sign(rows, coordinate) for rows, coordinate in pairs])
        recorded = account.spend(entry)
        answers = response.respond(signs, noise)
        sizes = np.array([len(rows) for rows in machines], dtype=np.int64)
        return SignAnswers(
            coordinates=coordinates,
            answers=answers,
            sizes=sizes,
            p=p,
            lie=response.lie,
            epsilon=self.epsilon,
            entries=recorded,
        )

    @property
    def spread(self) -> float:
        """Return coth(epsilon/2), the size of a debiased answer."""
        return 1.0 if math.isinf(self.epsilon) else 1.0 / math.tanh(self.epsilon / 2.0)


def assign_coordinates(machines: int, p: int, public_seed: RngLike = None) -> Integers:
    """Return a random coordinate for each machine; numbers of machines by coordinate differ by at most one.

    Examples
    --------
    >>> sorted(np.bincount(assign_coordinates(7, 3, 0)).tolist())
    [2, 2, 3]
    """
    check_count(machines, "machines")
    generator = as_generator(public_seed, "public_seed")
    order = generator.permutation(check_count(p, "p"))
    return np.asarray(generator.permutation(order[np.arange(machines) % p]), dtype=np.int64)


def mean_sign(rows: Floats, coordinate: int) -> int:
    """Return 1 if the mean of one column is at least 0, else 0; reads that column only."""
    return int(np.add.reduce(rows[:, coordinate]) >= 0.0)  # a sum has the sign of its mean


def _machines(samples: Any) -> list[Floats]:
    """Return the rows of each machine, checked; errors name machines by position and show no value."""
    if not isinstance(samples, (Sequence, np.ndarray)) or len(samples) == 0:
        raise ArgumentError("samples= must be a sequence of arrays of shape (n_i, p), one for each site")
    is_stack = type(samples) is np.ndarray and samples.ndim == 3 and samples.dtype == np.float64
    if is_stack and np.size(samples) and np.isfinite(samples).all():
        return list(samples)
    checked = [_rows(rows, position) for position, rows in enumerate(samples)]
    if len({rows.shape[1] for rows in checked}) > 1:
        raise AlignmentError(
            "the sites have different numbers of columns: all arrays in samples= need the same p columns"
        )
    return checked


def _rows(sample: Any, position: int) -> Floats:
    try:
        rows = np.asarray(sample, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(f"site {position}: rows must be numeric") from None
    if rows.ndim != 2 or 0 in rows.shape:
        raise SchemaError(
            f"site {position}: rows must have shape (n, p), with at least one row and one column, "
            f"got {rows.shape}"
        )
    if not np.isfinite(rows).all():
        raise SchemaError(f"site {position}: rows have missing or infinite values")
    return rows
