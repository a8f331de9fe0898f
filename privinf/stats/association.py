r"""Tables of two columns with levels, and correlations: tests that one column is independent of the other.

**Tables.** X are noisy counts of cells, noise of sd s. With margins p and q, at least 0.5/n, E = X - n p q'
    has V = n (diag p - p p') x (diag q - q q') + s^2 (M_p M_p') x (M_q M_q'),  M_p = I - p 1',
    for covariance, and T = E' V^- E. Rotated so that both matrices of the shorter side are diagonal, 1 and
    l, a line x of E has covariance M_q (n diag q + s^2 l I) M_q' = M_q C M_q'. As M_q q = 0, its part of T
    is the least (x + t q)' C^-1 (x + t q) over t: x'C^-1 x - (q'C^-1 x)^2/q'C^-1 q. The distribution of T is
    that of tables made up from the released margins, noise included: chi-square rejects 0.09 to 0.11 where
    noise swamps margins. The same release has the same p-value.
    Rows without a value (`missing="drop"`) are one more cell: all counts are projected on the public n, and
    simulated tables have that cell too. N, the sum of the K = r c other cells, stands for n above. The share
    p of a cell among complete rows is in its interval if
    (X - p N)^2 <= z^2 (N p (1 - p) + s^2 (K + K p^2 - 2 p)/(K + 1)).
**Correlation.** Of u and v in [-1, 1], sums of u, v (noise of sd a), u^2, v^2 (b) and u v (c) are released.
    A = sum u v - sum u sum v/n has noise of variance c^2 + (m_u^2 + m_v^2) a^2 + a^4/n^2; the test divides
    it by the root of n s_u^2 s_v^2 + noise. The interval holds every r with |A - r n s_u s_v| <= z V(r)^.5,
    V(r) = n s_u^2 s_v^2 (1 - r^2)^2 + noise + r^2 n^2 s_u^2 s_v^2 (Var s_u^2/4 s_u^4 + Var s_v^2/4 s_v^4),
    the last term from the noise of the variances; it is [-1, 1] where one of these is below 3 of its sds.
    With Laplace noise tails are the larger ones of these and of a normal plus one Laplace number, all noise.
    Where rows without a value add zero to every sum, N (noise of sd d) and sums of 1 - u^2 and 1 - v^2 are
    released as well. With R_u = N - P_u - S_u^2/N the interval holds every r with |A - r (R_u R_v)^.5| <= z
    V(r)^.5, V(r) = R_u R_v (1 - r^2)^2/N + noise of A - r (R_u R_v)^.5, to first order in the six noises.

References
----------
Kifer and Rogers (2017), "A new class of private chi-square hypothesis tests".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as distributions
from scipy.optimize import brentq

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundary
from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.samples import SampleQuery, SampleSums
from privinf.results.notes import CLIPPED_PAIRS, Note
from privinf.schema import Schema
from privinf.stats import base
from privinf.stats.groups import LEAST_RANK, complete_share_intervals, rank, score_interval
from privinf.stats.means import laplace_tail
from privinf.stats.values_at_bounds import values_at_bounds
from privinf.typing import (
    Alternative,
    Calibration,
    ColumnLike,
    Flags,
    Floats,
    Label,
    Missing,
    NoiseChoice,
    Pair,
    RngLike,
    SourceName,
    Table,
)
from privinf.wire import Labels

LEAST_MARGIN = 0.5  # least count of a level: p and q are at least .5/n
TABLES = 9999  # simulated tables
TABLE_STREAM = 11  # seed of these tables: the same release has the same p-value
CRAMERS_V = "Cramer's V"
EFFECT_TABLES = 499  # simulated tables at each V of the interval of Cramer's V
EFFECT_STREAM = 13  # their seed: the same at each V, so that the inverted probabilities are smooth
PRECISION = 1e-3  # of the ends of this interval, relative to the largest V
# Sds of its noise that a variance must exceed; else the interval of a correlation is [-1, 1].
HIDDEN_BELOW = 3.0
GRID = 4001  # correlations at which the test is inverted
HIDDEN_PAIR = (
    "At least one of the two variances cannot be distinguished from the noise, so there is no estimate, and "
    "the interval is [-1, 1]."
)
DF_OF_TABLE = (
    "Df is (rows - 1)(columns - 1); the p-value comes from simulated tables with noise, not from the "
    "chi-square distribution."
)
DF_OF_PAIRS = "Df is the number of records less two."
NO_LEVELS = (
    "the second column has no public levels: pass levels= (for a table of two columns a pair of lists, one "
    "per column), or pass names of columns instead of values, together with data= and schema="
)
NORMAL_PAIRS = (
    "The interval assumes jointly normal pairs, as the interval of scipy does; the test of "
    "no correlation does not."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableModel:
    """Released counts of r x c cells, projected on n records; any number of tables side by side.

    `gaps`, of the shape of the tables side by side, are the records without a value; None where that is
    impossible.
    """

    X: Floats
    n: int
    sd: float
    laplace: bool = False
    gaps: Floats | None = None

    @classmethod
    def from_counts(
        cls, X: Floats, n: int, sd: float, *, laplace: bool = False, gaps: Floats | None = None
    ) -> TableModel:
        """Return the distribution of released counts, whose noise has sd `sd`."""
        cells = math.prod(X.shape[-2:])
        excess = n - X.sum(axis=(-2, -1), keepdims=True)
        if gaps is None:
            return cls(X=X + excess / cells, n=n, sd=sd, laplace=laplace)
        excess = (excess - gaps[..., None, None]) / (cells + 1)
        return cls(X=X + excess, n=n, sd=sd, laplace=laplace, gaps=gaps + excess[..., 0, 0])

    @property
    def complete(self) -> Floats:
        """Number of records with a value: all, or what the gaps leave, at least one."""
        return np.asarray(float(self.n) if self.gaps is None else np.maximum(self.n - self.gaps, 1.0))

    def margins(self) -> tuple[Floats, Floats]:
        """Return p and q, each at least 0.5/n and adding up to 1."""
        margins = []
        for axis in (-1, -2):
            share = np.maximum(self.X.sum(axis=axis), LEAST_MARGIN) / self.complete[..., None]
            margins.append(share / share.sum(axis=-1, keepdims=True))
        return margins[0], margins[1]

    def squared_association(self) -> Floats:
        """Return chi-square over n, corrected for the noise, which may make it negative."""
        p, q = self.margins()
        E = self._excess(p, q)[0]
        square = (E**2 / (p[..., :, None] * q[..., None, :])).sum(axis=(-2, -1))
        cells = ((1.0 / p).sum(axis=-1) - p.shape[-1]) * ((1.0 / q).sum(axis=-1) - q.shape[-1])
        return np.asarray((square - self.sd**2 * cells) / self.complete**2)

    def _excess(self, p: Floats, q: Floats) -> tuple[Floats, Floats]:
        """Return the counts less those of independent factors, and the sign of the first cell's excess."""
        E = self.X - self.complete[..., None, None] * p[..., :, None] * q[..., None, :]
        sign = np.sign(E[..., 0, 0])
        for axis in (-1, -2):  # margins that were raised leave sums that are not 0
            E -= E.mean(axis=axis, keepdims=True)
        return E, sign

    def independence(self) -> tuple[Floats, Floats]:
        """Return T, and the sign of the first cell's excess."""
        p, q = self.margins()
        E, sign = self._excess(p, q)
        n = self.complete
        s2 = self.sd**2
        smaller_margin, larger_margin, F = (
            (p, q, E) if p.shape[-1] <= q.shape[-1] else (q, p, np.swapaxes(E, -1, -2))
        )
        W, values = _whitened(smaller_margin)
        F = W @ F
        larger_margin = larger_margin[..., None, :]
        C = n[..., None, None] * larger_margin + s2 * values[..., None]
        T = (F**2 / C).sum(axis=-1) - (larger_margin * F / C).sum(axis=-1) ** 2 / (larger_margin**2 / C).sum(
            axis=-1
        )
        return T.sum(axis=-1), sign

    def simulate(
        self, draws: int = TABLES, stream: int = TABLE_STREAM, shares: Floats | None = None
    ) -> TableModel:
        """Return simulated tables, noise included.

        Their axis is the first; each of several tables side by side has its own draws. `shares` are those of
        the cells, of the shape of the tables; by default rows and columns are independent with the released
        margins.
        """
        rng = np.random.default_rng(stream)
        (p, q) = self.margins()
        shares = p[..., :, None] * q[..., None, :] if shares is None else shares
        shares = shares.reshape(*p.shape[:-1], -1)
        if self.gaps is not None:
            complete = np.minimum(self.complete / self.n, 1.0)[..., None]
            shares = np.concatenate([shares * complete, 1.0 - complete], axis=-1)
        cells = rng.multinomial(self.n, shares, size=(draws, *p.shape[:-1])).astype(np.float64)
        noise = (
            rng.laplace(0.0, self.sd / math.sqrt(2.0), cells.shape)
            if self.laplace
            else rng.normal(0.0, self.sd, cells.shape)
        )
        cells = cells + noise
        gaps = None
        if self.gaps is not None:
            gaps = cells[..., -1]
            cells = cells[..., :-1]
        return TableModel.from_counts(cells.reshape(draws, *self.X.shape), self.n, self.sd, gaps=gaps)


def _whitened(p: Floats) -> tuple[Floats, Floats]:
    """Return W and l, W (diag p - p p') W' = I and W M_p M_p' W' = diag l; vectors add up to 0."""
    k = p.shape[-1]
    if k == 2:
        inverse = 1.0 / p.prod(axis=-1)[..., None]
        return np.array([0.5, -0.5]) * np.sqrt(inverse)[..., None], inverse - 2.0
    basis = np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)[:, 1:]]))[0][:, 1:]
    v = p @ basis
    outer = v[..., :, None] * v[..., None, :]
    L = np.linalg.inv(np.linalg.cholesky(basis.T @ (p[..., :, None] * basis) - outer))
    values, vectors = np.linalg.eigh(L @ (np.eye(k - 1) + k * outer) @ np.swapaxes(L, -1, -2))
    return np.swapaxes(vectors, -1, -2) @ L @ basis.T, values


@error_boundary
def chi2_contingency(
    a: ColumnLike | str,
    b: ColumnLike | str,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    levels: tuple[Sequence[Label], Sequence[Label]] | None = None,
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> base.StatResult:
    """Test that two factors are independent, by a chi-square test that allows for the noise.

    Parameters
    ----------
    a : array_like or str
        Level of each record of the first factor, or the name of its column in `data`.
    b : array_like or str
        Level of each record of the second factor, or the name of its column in `data`.
    data : table, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise is
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta. With ``delta=0`` the guarantee is
        pure epsilon, with Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    levels : pair of sequences, optional
        Public levels of `a` and of `b`, required if `a` and `b` are arrays.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1. The intervals are for the shares of the cells in
        the population.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto" the noise is Laplace noise if ``delta=0``, or if no ledger is
        passed and Laplace noise is smaller. Otherwise the noise is Gaussian, for which the total cost of
        several releases is lower.
    calibration : {"exact", "classic"}, optional
        How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
        calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to reproduce
        published results.
    source : {"lattice", "opendp"}, optional
        Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
        sampler of OpenDP.
    ledger : Ledger, optional
        Budget ledger that records the cost of the release. If the release would exceed the limit of the
        ledger, it is refused before any row is read. The cost is recorded in the ledger before anything is
        released.

    Returns
    -------
    StatResult
        Result with ``statistic`` and ``pvalue``. Its attribute ``effects`` contains Cramer's V, and ``table``
        has the shares of the cells.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public. A
    replaced record moves from one cell to another, so the vector of counts changes by at most sqrt 2.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 3, 4000)
    >>> b = np.where(rng.uniform(size=4000) < 0.2, a, rng.integers(0, 3, 4000))
    >>> r = pi.stats.chi2_contingency(a, b, levels=([0, 1, 2], [0, 1, 2]), epsilon=1.0, delta=1e-6, rng=0)
    >>> bool(r.pvalue < 0.001)
    True
    """
    options = base.SampleOptions(
        data=data,
        schema=schema,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        rng=rng,
        missing=missing,
        noise=noise,
        calibration=calibration,
        source=source,
        ledger=ledger,
    )
    level = base.check_level(confidence_level)
    if levels is not None and len(levels) != 2:
        raise ArgumentError("levels= must be a pair, with the levels of a and the levels of b")
    request, names = request_table(a, b, (None, None) if levels is None else levels, options)
    release = request.release(
        SampleQuery(
            kind="cells", values=(), by=names, label=Labels.BY.format(values=names[0], groups=names[1])
        )
    )
    return independence(release, level)


def independence(release: SampleSums, level: float) -> base.StatResult:
    """Return the test of independence of a released table; its rows are the cells' shares."""
    model = table_model(release)
    T, _ = model.independence()
    r, c = model.X.shape
    size, size_ends = cramers_v(model, level)
    names = release.query.by
    return base.StatResult(
        title="Test of Independence",
        release=release,
        rows=cell_rows(release, model, level),
        confidence_level=level,
        test=base.NullTest(
            statistic=float(T),
            pvalue=rank(model.simulate().independence()[0], float(T)),
            df=float((r - 1) * (c - 1)),
            least_pvalue=LEAST_RANK,
            null=f"{names[0]} and {names[1]} independent",
        ),
        ranked_notes=(DF_OF_TABLE,),
        effects={CRAMERS_V: size},
        effect_intervals={CRAMERS_V: base.ConfidenceInterval(*size_ends)},
    )


def cramers_v(model: TableModel, level: float) -> tuple[float, tuple[float, float]]:
    """Return Cramer's V of a table, corrected for the noise, and its interval of confidence level `level`.

    With the margins p and q, ``V^2 = sum (P_ij - p_i q_j)^2/(p_i q_j)/(min(r, c) - 1)``. The released counts
    over their sum, negative ones as 0, are shares p q' + D. The interval inverts the test of V along the
    tables ``P(t) = p q' + t D``, which have the same margins and the V of t = 1 times t. At each t, tables
    with these shares and the noise of the release are simulated. An end of the interval is the smallest
    (largest) V at which the corrected chi-square of the release, or a larger (smaller) one, has the
    probability ``(1 - level)/2``. So the interval allows for the sampling of chi-square under dependence,
    its positive mean under independence and the noise.

    - The upper end is 1 if the largest t without a negative share is not rejected.
    - A chi-square below the median of independent tables counts as this median for the upper end: the
      interval is not empty, and not short by chance.
    - D has the noise of the counts, which is largest relative to rare cells, where it also moves chi-square
      most. The intervals are therefore rather too wide where noise prevails.
    """
    r, c = model.X.shape
    unit = float(min(r, c) - 1)
    square = float(model.squared_association()) / unit
    size = min(math.sqrt(max(square, 0.0)), 1.0)
    independent, excess = _shares_and_excess(model)
    slope = math.sqrt(float((excess**2 / independent).sum()) / unit)
    falling = excess < 0.0
    if not slope > 0.0:
        return size, (0.0, 1.0)
    largest = float((independent[falling] / -excess[falling]).min())
    tail = (1.0 - level) / 2.0

    def simulated(t: float) -> Floats:
        shares = np.maximum(independent + t * excess, 0.0)
        tables = model.simulate(EFFECT_TABLES, EFFECT_STREAM, shares / shares.sum())
        return tables.squared_association() / unit

    upper_square = max(square, float(np.median(simulated(0.0))))
    low = _root(lambda t: _log_odds(simulated(t) >= square, tail), largest)
    high = _root(lambda t: -_log_odds(simulated(t) <= upper_square, tail), largest)
    return size, (min(low * slope, 1.0), 1.0 if high >= largest else min(high * slope, 1.0))


def _log_odds(hits: Flags, probability: float) -> float:
    """Return the log odds of the share of hits less those of a probability."""
    count = float(np.count_nonzero(hits)) + 0.5
    return math.log(count / (len(hits) + 1.0 - count)) - math.log(probability / (1.0 - probability))


def _root(increasing: Callable[[float], float], largest: float) -> float:
    """Return the root of an increasing function; 0 or `largest` if it is positive, or negative, between."""
    if increasing(0.0) >= 0.0:
        return 0.0
    if increasing(largest) <= 0.0:
        return largest
    return float(brentq(increasing, 0.0, largest, xtol=PRECISION * largest))


def _shares_and_excess(model: TableModel) -> tuple[Floats, Floats]:
    """Return p q' and D of the shares p q' + D of the released counts, negative ones as 0."""
    counts = np.maximum(model.X, 0.0)
    total = max(float(counts.sum()), LEAST_MARGIN)
    margins = []
    for axis in (1, 0):
        share = np.maximum(counts.sum(axis=axis), LEAST_MARGIN)
        margins.append(share / share.sum())
    independent = np.outer(*margins)
    excess = counts / total - independent
    # margins that were raised leave sums that are not 0
    excess -= excess.sum(axis=1, keepdims=True) * margins[1]
    excess -= excess.sum(axis=0, keepdims=True) * margins[0][:, None]
    return independent, excess


def request_table(
    a: object, b: object, levels: Sequence[Sequence[Label] | None], options: base.SampleOptions
) -> tuple[base.SampleRequest, tuple[str, ...]]:
    """Return two columns with levels; numbers from 0 to 1 count as the levels 0 and 1."""
    declared_levels = [None if column_levels is None else list(column_levels) for column_levels in levels]
    if (
        not isinstance(a, str)
        and not isinstance(b, str)
        and not base.is_table(b)
        and declared_levels[1] is None
    ):
        raise SensitivityError(NO_LEVELS)
    if not isinstance(a, str) and declared_levels[0] is None and declared_levels[1] is not None:
        declared_levels[0] = [0, 1]
    return base.request_levels({"a": a, "b": b}, dict(zip(("a", "b"), declared_levels, strict=True)), options)


def table_model(release: SampleSums) -> TableModel:
    """Return the distribution of released cells."""
    shape = [len(levels) for levels in release.levels]
    X = release.sums[: math.prod(shape), 0].reshape(shape)
    gaps = None if release.complete is None else release.sums[-1, 0]
    return TableModel.from_counts(
        X, release.nobs, float(release.scale[0]), laplace=release.noise == "laplace", gaps=gaps
    )


def cell_rows(release: SampleSums, model: TableModel, level: float) -> tuple[base.EstimateRow, ...]:
    """Return the share of every cell."""
    low, high = _share_intervals(model, level)
    n = float(model.complete)
    p = np.clip(model.X.ravel() / n, 0.0, 1.0)
    sd = np.sqrt(p * (1.0 - p) / n + (model.sd / n) ** 2)
    cells = zip(base.cell_names(release), p, sd, low, high, strict=True)
    return tuple(base.EstimateRow(name, *map(float, row)) for name, *row in cells)


def _share_intervals(model: TableModel, level: float) -> tuple[Floats, Floats]:
    """Return the ends of the shares of cells among complete records, inside [0, 1]."""
    X = model.X.ravel()
    if model.gaps is None:
        return score_interval(X, model.n, model.sd, level)
    return complete_share_intervals(X, 1, float(model.complete), model.sd, len(X) + 1, level)


# ---- correlation


@dataclass(frozen=True, slots=True, kw_only=True)
class PairModel:
    """Released sums of n pairs: the score A, s_u s_v and their variances; arrays of any shape.

    `relative` is the noise's variance of n s_u s_v over n^2 s_u^2 s_v^2, and `cross` its covariance with A,
    which is neglected where n is public.
    """

    A: Floats
    product: Floats
    noise: Floats
    relative: Floats
    n: float
    laplace: bool = False
    cross: float = 0.0

    @classmethod
    def from_sums(
        cls, sums: Floats, n: int, a: float, b: float, c: float, *, laplace: bool = False
    ) -> PairModel:
        """Return the model of sums (..., 5) with noise of these sds; `relative` is inf where one is weak."""
        means = sums[..., :2] / n
        squares = sums[..., 2:4] / n
        s2 = squares - means**2 + (a / n) ** 2
        noise_variance = (b**2 + 4.0 * means**2 * a**2) / float(n) ** 2
        A = sums[..., 4] - n * means[..., 0] * means[..., 1]
        noise = c**2 + (means**2).sum(axis=-1) * a**2 + a**4 / float(n) ** 2
        weak = (s2 <= HIDDEN_BELOW * np.sqrt(noise_variance)).any(axis=-1) | (s2 <= 0.0).any(axis=-1)
        positive_s2 = np.maximum(s2, 1e-12)
        relative = np.where(weak, np.inf, (noise_variance / (4.0 * positive_s2**2)).sum(axis=-1))
        return cls(
            A=A,
            product=np.sqrt(np.maximum(s2, 0.0).prod(axis=-1)),
            noise=noise,
            relative=relative,
            n=n,
            laplace=laplace,
        )

    @classmethod
    def from_complete(cls, sums: Floats, n: int, noise: Floats) -> PairModel:
        """Return the model of sums (6,) over the complete ones of n pairs, whose noise has these sds."""
        total, *means, P_u, P_v, products = map(float, sums)
        N = min(max(total, 3.0), float(n))
        m = np.clip(np.array(means) / N, -1.0, 1.0)
        variances = noise**2
        d2, a2 = float(variances[0]), float(variances[1])
        R = N - np.array([P_u, P_v]) - N * m**2 + (a2 + m**2 * d2) / N
        A = products - N * m[0] * m[1]
        # Derivatives by N, S_u, S_v, P_u, P_v and the sum of products.
        of_score = np.array([m[0] * m[1], -m[1], -m[0], 0.0, 0.0, 1.0])
        of_squares = np.array(
            [[1.0 + m[0] ** 2, -2.0 * m[0], 0, -1, 0, 0], [1.0 + m[1] ** 2, 0, -2.0 * m[1], 0, -1, 0]]
        )
        sds = np.sqrt((of_squares**2) @ variances)
        weak = total <= HIDDEN_BELOW * math.sqrt(d2) or bool(
            (HIDDEN_BELOW * sds >= R).any() or (R <= 0.0).any()
        )
        product = math.sqrt(max(float(R.clip(0.0).prod()), 0.0))
        of_product = 0.0 * of_score if weak else 0.5 * product * (of_squares / R[:, None]).sum(axis=0)
        relative = np.inf if weak else float(of_product**2 @ variances) / product**2
        return cls(
            A=np.asarray(A),
            product=np.asarray(product / N),
            noise=np.asarray(float(of_score**2 @ variances) + a2**2 / N**2),
            relative=np.asarray(relative),
            n=N,
            cross=float((of_score * of_product) @ variances),
        )

    @classmethod
    def released(cls, release: SampleSums) -> PairModel:
        """Return the model of one release, of all pairs or of complete ones."""
        if release.complete is not None:
            return cls.from_complete(release.sums[0], release.nobs, release.scale)
        a, b, c = (float(release.scale[place]) for place in (0, 2, 4))
        return cls.from_sums(release.sums[0], release.nobs, a, b, c, laplace=release.noise == "laplace")

    @property
    def r(self) -> Floats:
        """The correlation, inside [-1, 1]; 0 where a variance is hidden."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.product > 0.0, np.clip(self.A / (self.n * self.product), -1.0, 1.0), 0.0)

    def zero(self) -> Floats:
        """Return the statistic of no correlation: without noise Student's, of n - 2 degrees of freedom."""
        spread = self.n * self.product**2 + self.noise
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(spread > 0.0, self.A / np.sqrt(spread), 0.0)
            return np.where(
                z**2 < self.n, z * np.sqrt((self.n - 2) / np.maximum(self.n - z**2, 1e-9)), z * 1e9
            )

    def variance(self, r: Floats) -> Floats:
        """Return V(r); infinite where a variance is hidden."""
        size = self.n * self.product**2
        relative = np.where(np.isfinite(self.relative), self.relative, 0.0)
        finite_variance = size * (1.0 - r**2) ** 2 + self.noise + r**2 * self.n * size * relative
        if self.cross:
            finite_variance = finite_variance - 2.0 * r * self.cross
        return np.where(np.isfinite(self.relative), finite_variance, np.inf)

    def tail(self, apart: Floats, variance: Floats) -> Floats:
        """Return half the probability that A is so far from its mean, or farther."""
        with np.errstate(divide="ignore", invalid="ignore"):
            normal_tail = distributions.norm.sf(np.abs(np.nan_to_num(apart / np.sqrt(variance))))
        if not self.laplace:
            return np.asarray(normal_tail)
        rest = np.sqrt(np.maximum(variance - self.noise, 0.0))
        return np.maximum(normal_tail, laplace_tail(np.abs(apart), rest, math.sqrt(float(self.noise) / 2.0)))

    def pvalue(self, alternative: Alternative) -> float:
        """Return the p-value of no correlation."""
        t = float(self.zero())
        half = float(distributions.t.sf(abs(t), self.n - 2))
        if self.laplace:
            half = max(half, float(self.tail(self.A, self.n * self.product**2 + self.noise)))
        if alternative == "two-sided":
            return 2.0 * half
        return half if (t > 0.0) == (alternative == "greater") else 1.0 - half

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the correlations that are not rejected, of one release."""
        if not np.isfinite(self.relative):
            return -1.0, 1.0
        r = np.linspace(-1.0, 1.0, GRID)
        tail = self.tail(self.A - r * self.n * self.product, self.variance(r))
        not_rejected = np.flatnonzero(tail >= (1.0 - level) / 2.0)
        if not len(not_rejected):
            return float(self.r), float(self.r)
        step = r[1] - r[0]
        return max(float(r[not_rejected[0]] - step), -1.0), min(float(r[not_rejected[-1]] + step), 1.0)


@error_boundary
def pearsonr(
    x: ColumnLike | str,
    y: ColumnLike | str,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    bounds: tuple[Pair, Pair] | None = None,
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> base.StatResult:
    """Return the Pearson correlation of two columns, and test that it is zero.

    Parameters
    ----------
    x : array_like, Series or str
        Values of the records, or the name of a column of `data`.
    y : array_like, Series or str
        Values of the records, or the name of a column of `data`.
    data : table, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise is
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta. With ``delta=0`` the guarantee is
        pure epsilon, with Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    bounds : pair of (low, high), optional
        Public bounds of `x` and of `y`, required if `x` and `y` are arrays.
    alternative : {"two-sided", "less", "greater"}
        Alternative hypothesis: the correlation differs from 0, or is less or greater than 0.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1. The confidence interval of the correlation is
        always two-sided.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto" the noise is Laplace noise if ``delta=0``, or if no ledger is
        passed and Laplace noise is smaller. Otherwise the noise is Gaussian, for which the total cost of
        several releases is lower.
    calibration : {"exact", "classic"}, optional
        How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
        calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to reproduce
        published results.
    source : {"lattice", "opendp"}, optional
        Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
        sampler of OpenDP.
    ledger : Ledger, optional
        Budget ledger that records the cost of the release. If the release would exceed the limit of the
        ledger, it is refused before any row is read. The cost is recorded in the ledger before anything is
        released.

    Returns
    -------
    StatResult
        Result with ``statistic``, ``pvalue``, ``estimate`` and ``table``.

    Notes
    -----
    The interval assumes that the two columns are jointly normal, as in scipy. The interval is too short if
    correlated columns are skewed.

    **Privacy.** Neighboring tables differ in one record, with both its values (replace-one), and the number
    of records is public. Five sums of the two columns are released together.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x, e = np.random.default_rng(0).normal(size=(2, 5000))
    >>> r = pi.stats.pearsonr(x, 0.5 * x + e, bounds=((-4, 4), (-5, 5)), mu=0.5, rng=0)
    >>> bool(r.pvalue < 1e-6 and r.rows[0].low < 0.447 < r.rows[0].high)
    True
    """
    options = base.SampleOptions(
        data=data,
        schema=schema,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        rng=rng,
        missing=missing,
        noise=noise,
        calibration=calibration,
        source=source,
        ledger=ledger,
    )
    level = base.check_level(confidence_level, alternative)
    if bounds is not None and np.asarray(bounds).shape != (2, 2):
        raise ArgumentError(
            "bounds= must be a pair of pairs, the bounds of x and the bounds of y: ((low, high), (low, high))"
        )
    first, second = (None, None) if bounds is None else (base.public_pair(pair) for pair in bounds)
    request, names = base.request_columns({"x": x, "y": y}, {"x": first, "y": second}, options)
    release = request.release(
        SampleQuery(
            kind="pairs", values=names, label=Labels.CORRELATION.format(first=names[0], second=names[1])
        )
    )
    model = PairModel.released(release)
    size = max(model.n * float(model.product), 1e-300)
    is_weak = not np.isfinite(model.relative)
    r = math.nan if is_weak else float(model.r)
    bse = math.nan if is_weak else min(math.sqrt(float(model.variance(model.r))) / size, 1.0)
    row = base.EstimateRow(f"{names[0]}, {names[1]}", r, bse, *model.interval(level))
    weak = HIDDEN_PAIR if is_weak else NORMAL_PAIRS
    first_sum = 0 if release.complete is None else 1
    means = release.sums[0, first_sum : first_sum + 2] / model.n
    sds = release.scale[first_sum : first_sum + 2] / model.n
    at_bounds = [
        values_at_bounds(name, (), means[j : j + 1], sds[j : j + 1], release.ends_of(j))
        for j, name in enumerate(names)
    ]
    near = base.warn_of(tuple(caution for cautions, _ in at_bounds for caution in cautions))
    return base.StatResult(
        title="Correlation",
        release=release,
        rows=(row,),
        confidence_level=level,
        test=base.NullTest(
            statistic=float(model.zero()),
            pvalue=model.pvalue(alternative),
            df=model.n - 2.0,
            null=f"{names[0]} and {names[1]} uncorrelated",
            alternative=alternative,
        ),
        effects={"r": row.estimate},
        effect_intervals={"r": base.ConfidenceInterval(row.low, row.high)},
        cautions=near,
        ranked_notes=(
            Note(CLIPPED_PAIRS, "header"),
            weak,
            *(note for _, notes in at_bounds for note in notes),
            Note(DF_OF_PAIRS, "detail"),
        ),
    )
