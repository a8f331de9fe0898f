r"""Sparse mean estimation without a trusted server, from one sign per machine.

Means are counts of positive answers, inverted. Machine i, with n_i rows of N(mu, s^2 I), has a positive mean
in coordinate j with probability Phi(sqrt(n_i) mu_j / s). With lie the probability of a false answer, the m_j
machines that are asked about j answer 1 with mean probability ``lie + (1 - 2 lie) F_j(mu_j)``, F_j the
average of those normal curves, which increases in mu_j: everything here is that curve and its inverse. In
these curves mu is in units of s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

from privinf.accounting import Ledger, LedgerEntry, PrivacyReport, Released
from privinf.accounting.released import appended
from privinf.error_boundary import error_boundaries, error_boundary, warn
from privinf.errors import AlignmentError, ArgumentError, WeakIdentificationWarning
from privinf.inference.estimate import upper_quantile
from privinf.mechanisms.local.signs import SignChannel
from privinf.results.notes import Note, must_read
from privinf.results.rendering import PrivateSummary
from privinf.results.summary import NOT_PRIVATE, OBSERVATIONS, number, privacy_facts
from privinf.typing import ArrayLike, Flags, Floats, Integers, RngLike, SourceName, SummaryNotes
from privinf.validation import check_choice, check_count, check_fraction, check_number, listed
from privinf.wire import readable

MeanInterval = Literal["exact", "delta"]
LARGEST_SCALE = 1e150  # its square is a finite double
SATURATION = 2.0  # of sqrt(n) mu: beyond it only 1 in 44 signs is informative
JOINT_INTERVALS = (
    "The table has the selected coordinates only. The intervals of all coordinates cover jointly with "
    "probability {:.4g} or more, so they hold after the selection."
)
SATURATED = "The signs of {} are saturated: the estimate is a limit, and the interval is open on one side."
_BISECTIONS = 80  # halvings of the bracket, more than a double has digits


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SignCounts:
    """Answers by coordinate.

    Attributes
    ----------
    hits, asked : ndarray of int, shape (p,)
        Positive answers, and machines queried.
    sizes : ndarray, shape (u,)
        Different numbers of rows.
    weights : ndarray, shape (p, u)
        Share of each among the machines queried; zero rows where none was.
    lie : float
    """

    hits: Integers
    asked: Integers
    sizes: Floats
    weights: Floats
    lie: float

    @classmethod
    def from_answers(
        cls, coordinates: Integers, answers: Integers, sizes: Integers, p: int, lie: float
    ) -> SignCounts:
        """Count answers by coordinate."""
        counts = np.bincount(coordinates, minlength=p)
        hits = np.bincount(coordinates, weights=answers, minlength=p).astype(np.int64)
        unique, kind = np.unique(sizes, return_inverse=True)
        table = np.zeros((p, len(unique)))
        np.add.at(table, (coordinates, kind), 1.0)
        return cls(
            hits=hits,
            asked=counts,
            sizes=unique.astype(np.float64),
            weights=table / np.maximum(counts, 1)[:, None],
            lie=lie,
        )

    def shares(self) -> Floats:
        """Return unbiased shares of positive signs, shape (p,): at times outside [0, 1], nan if unknown."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.undistorted(self.hits / self.asked), dtype=np.float64)

    def undistorted(self, probability: Floats) -> Floats:
        """Return the probability of a positive sign given that of a positive answer."""
        return (probability - self.lie) / (1.0 - 2.0 * self.lie)

    def slope(self, mu: Floats) -> Floats:
        """Return the derivative of F at mu, shape (p,)."""
        root = np.sqrt(self.sizes)
        density = np.exp(-0.5 * (mu[:, None] * root) ** 2) / math.sqrt(2.0 * math.pi)
        return np.asarray((self.weights * root * density).sum(axis=1), dtype=np.float64)

    def inverse(self, probability: Floats) -> Floats:
        """Return mu with F(mu) = probability, shape (p,); infinite from 0 down and from 1 up."""
        inside = np.clip(probability, 0.0, 1.0)
        if len(self.sizes) == 1:
            return np.asarray(ndtri(inside) / math.sqrt(self.sizes[0]), dtype=np.float64)
        # F lies between the curves of the smallest and the largest machine.
        ends = ndtri(inside)[:, None] / np.sqrt(self.sizes[[0, -1]])
        low, high = ends.min(axis=1), ends.max(axis=1)
        bounded = np.isfinite(low)
        low = np.where(bounded, low, 0.0)
        high = np.where(bounded, high, 0.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = (self.weights * ndtr(middle[:, None] * np.sqrt(self.sizes))).sum(axis=1) < inside
            low = np.where(below, middle, low)
            high = np.where(below, high, middle)
        return np.where(bounded, 0.5 * (low + high), ndtri(inside))


@dataclass(frozen=True, slots=True, eq=False)
class SignEstimate:
    """Point estimates in units of the sd; nan where no machine was queried.

    Attributes
    ----------
    params, bse : ndarray, shape (p,)
        Estimates are held inside the saturation; their standard error is infinite there.
    saturated : ndarray of bool, shape (p,)
        The share of positive signs is beyond Phi(2), or less than two standard errors from it.
    """

    params: Floats
    bse: Floats
    saturated: Flags


def sign_estimate(counts: SignCounts) -> SignEstimate:
    """Invert the shares of positive signs; first-order standard errors."""
    share = counts.shares()
    edge = float(ndtr(SATURATION))
    unknown = counts.asked == 0
    inside = np.where(unknown, 0.5, np.clip(share, 1.0 - edge, edge))
    mu = counts.inverse(inside)
    answer = counts.lie + (1.0 - 2.0 * counts.lie) * inside
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(answer * (1.0 - answer) / counts.asked) / (1.0 - 2.0 * counts.lie)
        bse = spread / np.where(unknown, 1.0, counts.slope(mu))
        saturated = np.abs(share - 0.5) + 2.0 * spread > edge - 0.5
    return SignEstimate(np.where(unknown, np.nan, mu), np.where(saturated | unknown, np.inf, bse), saturated)


def expected_square(counts: SignCounts, mu: float, coordinate: int) -> float:
    """Return the mean squared error of an estimate of mu, over all answers that machines may give.

    Notes
    -----
    The sum over h of ``P(h) (estimate(h) - mu)^2``, h binomial with the mean probability of a positive
    answer: exact for machines of one size. It has what a first-order variance at zero has not: the slope of
    the curve at mu, its curvature, and that estimates are held within 2/sqrt(n).
    """
    count = int(counts.asked[coordinate])
    if count == 0:
        return math.nan
    hits = np.arange(count + 1)
    weights = counts.weights[coordinate]
    outcomes = SignCounts(
        hits=hits,
        asked=np.full(count + 1, count),
        sizes=counts.sizes,
        weights=np.tile(weights, (count + 1, 1)),
        lie=counts.lie,
    )
    curve = float(weights @ ndtr(mu * np.sqrt(counts.sizes)))
    chance = binom.pmf(hits, count, counts.lie + (1.0 - 2.0 * counts.lie) * curve)
    return float(chance @ (sign_estimate(outcomes).params - mu) ** 2)


def exact_limits(counts: SignCounts, alpha: float) -> Floats:
    r"""Return intervals, shape (p, 2), that cover each mu_j with probability at least ``1 - alpha``.

    Notes
    -----
    Clopper-Pearson limits of the mean probability of a positive answer, mapped by F's inverse: unbounded
    beyond the range in which signs are informative. With machines of different sizes the count is a sum of
    unequal Bernoulli variables, whose tails beyond its mean are lighter than the binomial's (Hoeffding 1956):
    the limits still hold.
    """
    hits = counts.hits
    misses = counts.asked - counts.hits
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), misses + 1, alpha / 2.0), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1), 1.0 - alpha / 2.0), 1.0)
    return np.column_stack([counts.inverse(counts.undistorted(end)) for end in (low, high)])


def minimax_rate(*, n: float, machines: int, p: int, sparsity: int, epsilon: float) -> float:
    """Return min(s/n, s p/(m n eps^2)), the order of the squared l2 error: no constants, no logarithms.

    The second term is a rate for epsilon up to about 1: beyond, one sign limits the error, not privacy.
    """
    return min(sparsity / n, sparsity * p / (machines * n * epsilon**2))


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SparseMeanResult(Released):
    """Means from randomized signs.

    Attributes
    ----------
    params, bse : Series, shape (p,)
        Of all coordinates, before any selection. Estimates are held within 2 sd/sqrt(n). Where the sign
        saturates, or might, the standard error is infinite; where no machine was queried, nan and infinite.
    sparse_params : Series, shape (p,)
        The `sparsity` largest; 0 elsewhere.
    selected : Index
        Their names.
    saturated : Series of bool, shape (p,)
        The share of positive signs is beyond Phi(2), or less than two standard errors from it.
    asked : Series of int, shape (p,)
        Machines queried about each coordinate.
    rate : float
        ``min(s/n, s p/(m n epsilon^2))`` in squared units, n the mean number of rows: the order of the least
        possible squared l2 error, without constants and logarithms.
    error : float
        First-order squared l2 error of this estimator on s coordinates near 0:
        ``s (p/m) coth^2(epsilon/2) pi/(2 n)``. Signals have more: see `expected_square`.
    nobs : int
        Rows of all machines together.
    privacy : PrivacyReport
        With the state of the ledger after it.
    entries : tuple of LedgerEntry
        The line that paid for it.
    counts : SignCounts
        The answers by coordinate.
    scale : float
    """

    params: pd.Series[float]
    bse: pd.Series[float]
    sparse_params: pd.Series[float]
    selected: pd.Index[Any]
    saturated: pd.Series[bool]
    asked: pd.Series[int]
    rate: float
    error: float
    nobs: int
    privacy: PrivacyReport = field()  # a field, not the property of `Released`
    entries: tuple[LedgerEntry, ...]
    counts: SignCounts
    scale: float

    def __repr__(self) -> str:
        return f"<SparseMeanResult: {len(self.params)} coordinates, {self.nobs} rows{appended(self.stamp)}>"

    def conf_int(
        self, alpha: float = 0.05, method: MeanInterval = "exact", *, joint: bool = False
    ) -> pd.DataFrame:
        """Return intervals of all p coordinates, columns 0 and 1.

        Parameters
        ----------
        alpha : float
        method : {"exact", "delta"}
            "exact": at least ``1 - alpha`` for any mean and any number of machines; unbounded on the side
            where signs are uninformative. "delta": the estimate and its standard error, unbounded on both
            sides where the sign saturates; too short where few machines were queried.
        joint : bool
            Bonferroni over all p coordinates.

        Notes
        -----
        Each interval covers its own coordinate: intervals are computed for all coordinates, not for the
        largest. Among intervals that are read *because* their coordinate was selected, more than alpha can
        fail; ``joint=True`` covers all coordinates simultaneously, hence any selected ones.

        **Privacy.** Post-processing of the answers.
        """
        level = check_fraction(alpha, "alpha") / (len(self.params) if joint else 1)
        if check_choice(method, MeanInterval, "method") == "exact":
            limits = self.scale * exact_limits(self.counts, level)
        else:
            middle = self.params.fillna(0.0).to_numpy()
            half = upper_quantile(level / 2.0) * self.bse.to_numpy()
            limits = np.column_stack([middle - half, middle + half])
        return pd.DataFrame(limits, self.params.index)

    def expected_square(self, mean: float = 0.0) -> float:
        """Return the mean squared error of the estimate of a coordinate whose mean is `mean`.

        Parameters
        ----------
        mean : float
            In the units of the rows. For a signal the error is larger than for a null: the curve of signs
            is flatter there, and estimates are limited to the range in which signs are informative.

        Returns
        -------
        float
            Summed over all answers that machines may give, as `privinf.lasso.sparse_mean.expected_square`
            does, for the coordinate that the fewest machines were queried about.

        Notes
        -----
        **Privacy.** Of public numbers alone; no answer is read.
        """
        scaled_mean = check_number(mean, "mean") / self.scale
        return self.scale**2 * expected_square(self.counts, scaled_mean, int(np.argmin(self.counts.asked)))

    def summary_frame(self, alpha: float = 0.05, *, joint: bool = False) -> pd.DataFrame:
        """Return estimates, exact intervals and flags side by side, one row per coordinate."""
        limits = self.conf_int(alpha, joint=joint)
        return pd.DataFrame(
            {
                "mean": self.params,
                "std err": self.bse,
                "low": limits[0],
                "high": limits[1],
                "selected": self.params.index.isin(self.selected),
                "saturated": self.saturated,
                "asked": self.asked,
            }
        )

    def summary(self, alpha: float = 0.05, notes: SummaryNotes = "main") -> PrivateSummary:
        """Return the means of the selected coordinates with joint intervals, and the cost.

        Parameters
        ----------
        alpha : float
            One minus the joint level of the intervals.
        notes : {"main", "all"}
            Notes below the table. With "main" the summary prints at most four notes: warnings and
            explanations of the table. With "all" it prints every note and the assumptions of the privacy
            guarantee.

        Returns
        -------
        Summary of statsmodels
            Summary, which prints as text. Its methods ``as_text``, ``as_html``, ``as_latex`` and ``as_csv``
            return other formats. `summary_frame` has the other coordinates.

        Notes
        -----
        **Privacy.** Post-processing of the answers.
        """
        check_choice(notes, SummaryNotes, "notes")
        table = self.summary_frame(alpha, joint=True).loc[self.selected]
        saturated = [str(name) for name in table.index[table["saturated"]]]
        return PrivateSummary(
            title="Sparse Mean Results",
            top=(
                [
                    ("Coordinates:", f"{len(self.params):d}, of which {len(table):d} selected"),
                    ("Machines:", f"{int(self.asked.sum()):d}"),
                    *([("Privacy:", NOT_PRIVATE)] if self.privacy.stamp else []),
                ],
                [
                    (OBSERVATIONS, f"{self.nobs:d}"),
                    ("l2 error near zero:", number(math.sqrt(self.error))),
                ],
            ),
            header=["mean", "std err", f"[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]", "machines"],
            rows=[
                (str(name), *map(number, row[:4]), f"{row[4]:d}")
                for name, *row in zip(
                    table.index,
                    table["mean"],
                    table["std err"],
                    table["low"],
                    table["high"],
                    table["asked"],
                    strict=True,
                )
            ],
            tests=([], []),
            privacy=privacy_facts(self.privacy),
            notes=[
                *(must_read(SATURATED.format(listed(saturated))) if saturated else ()),
                Note(JOINT_INTERVALS.format(1.0 - alpha), "table"),
                *(f"The privacy guarantee assumes: {readable(text)}." for text in self.privacy.assumptions),
            ],
            printed=notes,
        )

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()


@error_boundary
def sparse_mean(
    samples_by_machine: Sequence[ArrayLike] | Mapping[Any, ArrayLike] | Floats,
    *,
    epsilon: float,
    sparsity: int,
    scale: float = 1.0,
    names: Sequence[str] | None = None,
    public_seed: RngLike = None,
    ledger: Ledger | None = None,
    rng: RngLike = None,
    source: SourceName = "lattice",
) -> SparseMeanResult:
    r"""Estimate a sparse mean in the local model, from one private answer of each client.

    Parameters
    ----------
    samples_by_machine : sequence of m arrays of shape (n_i, p), array of shape (m, n, p), or mapping to such
        Rows of each client.
    epsilon : float
        Pure epsilon of the guarantee for all rows of one client. With infinity the answers are not protected.
    sparsity : int
        Number of coordinates to select (s of the paper).
    scale : float
        Public standard deviation of every coordinate of a row.
    names : sequence of p str, optional
        Names of the coordinates; by default 0, ..., p - 1.
    public_seed : None, int or Generator
        Public seed by which each client is assigned a coordinate.
    ledger : Ledger, optional
        Budget ledger that records the cost for one client.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    source : {"lattice", "opendp"}
        Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
        sampler of OpenDP.

    Returns
    -------
    result with `params`, `selected` and `privacy`
        Result with the estimated mean, the selected positions and the privacy report.

    Raises
    ------
    ArgumentError, SchemaError, AlignmentError, BudgetExceededError
        Raised, before anything is spent, if an argument or the rows are invalid or the limit of the ledger
        would be exceeded.

    Warns
    -----
    WeakIdentificationWarning
        Issued if almost all signs of some coordinate are, or may be, equal (saturation). Saturation occurs if
        sqrt(n) abs(mu) is above twice `scale`, or if the noise does not exclude such a value. The warning is
        also issued if no client answered for a coordinate.

    Notes
    -----
    **Privacy.** Each client sends one answer, which is epsilon-DP for all rows of the client together. If no
    person has rows at two clients, the total cost for a person is epsilon.

    Rows are assumed to be N(mu, scale^2 I) with a known scale, so the distribution of the sign of a mean of n
    rows depends only on mu sqrt(n)/scale. If s is the share of positive signs, the estimate is ``scale
    Phi^-1(s)/sqrt(n)``. The error of this estimate is linear in the number of coordinates p even if mu is
    sparse. This growth with p is the cost of the local model, in which no server is trusted. The coordinates
    are assigned to clients so that the numbers of clients per coordinate differ by at most one.

    References
    ----------
    "Differentially private federated learning: servers trustworthiness, estimation, and statistical
    inference" (docs/papers.md), Theorems 1 and 2.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rows = np.random.default_rng(0).normal([0.4, 0.0, 0.0], 1.0, (3000, 4, 3))
    >>> fit = pi.sparse_mean(rows, epsilon=1.0, sparsity=1, rng=0, public_seed=0)
    >>> fit.selected.tolist(), bool(abs(fit.params[0] - 0.4) < 0.1), round(fit.privacy.epsilon(1e-6), 3)
    ([0], True, 1.0)
    """
    scale = check_number(scale, "scale", low=0.0, high=LARGEST_SCALE, open_low=True)
    channel = SignChannel(epsilon)
    by_machine = samples_by_machine
    samples = list(by_machine.values() if isinstance(by_machine, Mapping) else by_machine)
    labels = _labels(samples, names)
    if check_count(sparsity, "sparsity") > len(labels):
        raise ArgumentError(f"sparsity={sparsity} must be at most {len(labels)}, the number of coordinates")
    release = channel.release(samples, public_seed=public_seed, ledger=ledger, rng=rng, source=source)
    counts = SignCounts.from_answers(
        release.coordinates, release.answers, release.sizes, release.p, release.lie
    )
    estimate = sign_estimate(counts)
    unknown = int((counts.asked == 0).sum())
    if estimate.saturated.any() or unknown:
        _warn(int(estimate.saturated.sum()), unknown)
    size = np.where(counts.asked > 0, np.abs(estimate.params), -1.0)
    order = np.lexsort((-np.abs(np.nan_to_num(counts.shares(), nan=0.5) - 0.5), -size))
    selected = np.sort(order[:sparsity])
    sparse = np.zeros(release.p)
    sparse[selected] = np.nan_to_num(scale * estimate.params[selected])
    n = float(release.sizes.mean())
    m = len(release.sizes)
    near_zero = sparsity * release.p / m * channel.spread**2 * math.pi / (2.0 * n)
    return SparseMeanResult(
        params=pd.Series(scale * estimate.params, labels),
        bse=pd.Series(scale * estimate.bse, labels),
        sparse_params=pd.Series(sparse, labels),
        selected=labels[selected],
        saturated=pd.Series(estimate.saturated, labels),
        asked=pd.Series(counts.asked, labels),
        rate=scale**2
        * minimax_rate(n=n, machines=m, p=release.p, sparsity=sparsity, epsilon=channel.epsilon),
        error=scale**2 * near_zero,
        nobs=int(release.sizes.sum()),
        privacy=PrivacyReport.from_entries(release.entries, ledger),
        entries=release.entries,
        counts=counts,
        scale=scale,
    )


def _labels(samples: list[Any], names: Sequence[str] | None) -> pd.Index[Any]:
    """Return the names of the coordinates."""
    if not samples or np.ndim(samples[0]) != 2:
        raise ArgumentError("samples_by_machine= must hold one array of shape (n_i, p) for each site")
    p = np.shape(samples[0])[1]
    if names is None:
        return pd.RangeIndex(p)
    labels = pd.Index(names)
    if len(labels) != p or labels.has_duplicates:
        raise AlignmentError(f"names= must hold {p} different names, one for each coordinate")
    return labels


def _warn(saturated: int, unknown: int) -> None:
    parts = []
    if saturated:
        parts.append(
            f"in {saturated} coordinate(s), the noise hides whether the means of the sites differ in sign"
        )
    if unknown:
        parts.append(f"in {unknown} coordinate(s), no site released a sign")
    warn(
        f"{', and '.join(parts)}, but an estimate needs sites whose signs differ. In these coordinates, "
        "standard errors are infinite, estimates may be missing and exact intervals unbounded: use more "
        "sites, or fewer rows per site",
        WeakIdentificationWarning,
    )
