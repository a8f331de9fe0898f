"""Sparse mean estimation without a trusted server, from one sign per machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from privinf.accounting import Ledger, LedgerEntry, PrivacyReport, Released
from privinf.accounting.released import appended
from privinf.error_boundary import error_boundaries, error_boundary, warn
from privinf.errors import AlignmentError, ArgumentError, WeakIdentificationWarning
from privinf.inference.estimate import upper_quantile
from privinf.lasso.signs import SignCounts, exact_limits, expected_square, minimax_rate, sign_estimate
from privinf.mechanisms.local.signs import SignChannel
from privinf.typing import ArrayLike, Floats, RngLike, SourceName
from privinf.validation import check_choice, check_count, check_fraction, check_number

MeanInterval = Literal["exact", "delta"]
LARGEST_SCALE = 1e150  # its square is a finite double


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
        largest. Of intervals that are read *because* their coordinate was selected, more than alpha can
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
            Summed over all answers that machines may give, as `privinf.lasso.signs.expected_square` does, for
            the coordinate that the fewest machines were queried about.

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
    r"""Estimate a sparse mean in the local model, from one private answer per machine.

    Parameters
    ----------
    samples_by_machine : sequence of m arrays of shape (n_i, p), array of shape (m, n, p), or mapping to such
        The rows of each machine.
    epsilon : float
        Pure epsilon for everything that a machine holds; infinity for answers without protection.
    sparsity : int
        Number of coordinates to keep (s of the paper).
    scale : float
        Public standard deviation of each coordinate of one row.
    names : sequence of p str, optional
        By default 0, ..., p - 1.
    public_seed : None, int or Generator
        Seed of the choice of coordinates.
    ledger : Ledger, optional
        Budget ledger of one machine.
    rng : None, int or Generator, optional
        None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not private;
        the results are marked as such.
    source : {"lattice", "opendp"}
        Sampler of secure noise: privinf's own (default), or OpenDP's.

    Returns
    -------
    result with `params`, `selected` and `privacy`
        The estimated mean, the selected positions and the privacy report.

    Raises
    ------
    ArgumentError, SchemaError, AlignmentError, BudgetExceededError
        Before anything is spent.

    Warns
    -----
    WeakIdentificationWarning
        In some coordinate the sign saturates (sqrt(n) abs(mu) above 2 sd, or noise that does not exclude
        it), or no machine answered for it.

    Notes
    -----
    **Privacy.** Each machine sends one answer, epsilon-DP for all its rows together (client level, local
    model); machines hold different units, so that epsilon is the total cost. See
    `privinf.mechanisms.local.signs`.

    Rows are N(mu, scale^2 I), with a known scale: the sign depends only on mu sqrt(n)/scale. The estimate is
    ``scale Phi^-1(share of positive signs)/sqrt(n)``, and the error is linear in p, sparse or not: the price
    of a server that is not trusted. Each coordinate has the same number of answers, which a random choice
    would not ensure.

    References
    ----------
    Paper 2, theorems 1 and 2.

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
            f"in {saturated} coordinate(s), the noise hides whether these signs differ between sites"
        )
    if unknown:
        parts.append(f"in {unknown} coordinate(s), no site released a sign")
    warn(
        f"each site releases the sign of its mean in some coordinates; {'; '.join(parts)}. There, standard "
        "errors may be infinite, estimates missing and exact intervals unbounded, because the estimate needs "
        "sites whose signs differ: use more sites, or fewer rows per site",
        WeakIdentificationWarning,
    )
