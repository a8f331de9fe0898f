r"""Totals of a column, and of its groups, from noisy counts and sums.

In units in which values are in [-1, 1] a group's total is middle N + half S, N its count and S its sum of u.
Counts are conditioned on the public n, which leaves their noise a^2 (1 - 1/k). **This table's total** has the
noise of both, whose quantile is exact. **The population's total** n E[v 1_g] has in addition the sampling
variance of the n products v 1_g, sum v^2 - (sum v)^2/n, from the released sums. With Laplace noise counts are
not conditioned, and the quantile is that of the two Laplace numbers, or of a normal number plus the larger of
them, if that is larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.inference.counts import laplace_sum_quantile, noise_half
from privinf.mechanisms.rows import refuse_dropping
from privinf.mechanisms.samples import SampleQuery, SampleSums
from privinf.results.notes import Note
from privinf.results.summary import number
from privinf.schema import Schema
from privinf.stats import base
from privinf.stats.groups import GroupModel, clip_cautions, groups_at_bounds
from privinf.stats.means import MeanModel, laplace_quantile
from privinf.stats.values_at_bounds import sample_at_bounds
from privinf.typing import (
    Calibration,
    ColumnLike,
    CountTarget,
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

CLIPPED_SUMS = (
    "Values are clipped to the public bounds [{:g}, {:g}]; the sums are those of the clipped values."
)
TABLE_SUMS = "The sums are those of this table: intervals allow for the noise, not for sampling."
POPULATION_SUMS = (
    "The sums estimate the number of records times the population's mean of the value, counted as 0 outside "
    "of the group: intervals allow for sampling and for the noise."
)
NO_DROPPED_SUMS = "sums of values, because a sum over complete rows lacks the unknown values of the others"
INSTEAD_OF_SUMS = "Estimate the mean, with pi.stats.mean"


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SumsResult(base.StatResult):
    """Sums of a column, or of its groups, with intervals, from one noisy release.

    The class also has all attributes of `StatResult`.

    Attributes
    ----------
    target : {"table", "population"}
        Target of the intervals: sums of this table, or of the population.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    target: CountTarget = "table"

    def _shown_number(self, value: float) -> str:
        """Return a total as the summary prints it."""
        return base.count_number(value) if abs(value) >= 1e4 else number(value)

    def intervals(
        self,
        *,
        target: CountTarget | None = None,
        confidence_level: float | None = None,
        simultaneous: bool | None = None,
    ) -> SumsResult:
        """Return the same sums with different intervals, from the same release.

        Parameters
        ----------
        target : {"table", "population"}, optional
            Target: sums of this table, or of the population. The default is the target of this result.
        confidence_level : float, optional
            Confidence level of the intervals, between 0 and 1. The default is the level of this result.
        simultaneous : bool, optional
            Whether all intervals hold jointly at the confidence level. By default it is the same as in this
            result.

        Returns
        -------
        SumsResult
            Result with the same estimates and the new intervals.
        """
        chosen = base.IntervalOptions.changed(self, target, confidence_level, simultaneous)
        return replace(_summed(self.release, chosen), cautions=self.cautions)


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalModel:
    """Totals of groups in user units, what their noise is made of, and their sampling variances.

    `count_sds` and `sum_sds` are the sds of the two independent parts of the noise.
    """

    totals: Floats
    count_sds: Floats
    sum_sds: Floats
    sampling: Floats
    laplace: bool

    @classmethod
    def from_release(cls, release: SampleSums) -> TotalModel:
        """Return the model of sums of groups, or of one sample."""
        middle, half = float(release.middle[0]), float(release.half[0])
        n = release.nobs
        laplace = release.noise == "laplace" and float(release.scale[0]) > 0.0
        if release.query.kind == "one sample":
            model = MeanModel.released(release)
            return cls(
                totals=np.array([n * (middle + half * float(model.mean))]),
                count_sds=np.zeros(1),
                sum_sds=np.array([half * model.noise[0]]),
                sampling=np.array([n * (half * float(model.sd)) ** 2]),
                laplace=laplace,
            )
        groups = GroupModel.released(release)
        N = release.sums[:, 0] if laplace else groups.N
        k = len(N)
        totals = middle * N + half * groups.S
        squares = middle**2 * N + 2.0 * middle * half * groups.S + half**2 * (N - groups.P)
        return cls(
            totals=totals,
            count_sds=np.full(k, abs(middle) * groups.a * (1.0 if laplace else math.sqrt(1.0 - 1.0 / k))),
            sum_sds=np.full(k, half * groups.a),
            sampling=np.maximum(squares - totals**2 / n, 0.0),
            laplace=laplace,
        )

    @property
    def noise_sds(self) -> Floats:
        """Sds of the noise of the totals."""
        return np.hypot(self.count_sds, self.sum_sds)

    def half_lengths(self, level: float, *, sampling: bool) -> Floats:
        """Return half of the lengths of intervals."""
        noise = noise_half(self.noise_sds, level)
        if not sampling:
            if not self.laplace:
                return noise
            quantiles = [
                two_laplace_quantile(level, float(first), float(second))
                for first, second in zip(self.count_sds, self.sum_sds, strict=True)
            ]
            return np.array(quantiles)
        sds = np.sqrt(self.noise_sds**2 + self.sampling)
        half = noise_half(sds, level)
        if not self.laplace:
            return half
        larger = np.maximum(self.count_sds, self.sum_sds)
        rest = np.sqrt(np.maximum(sds**2 - larger**2, 0.0))
        tail = (1.0 - level) / 2.0
        mixed = [
            float(laplace_quantile(tail, np.asarray(sd), scale / math.sqrt(2.0)))
            for sd, scale in zip(rest, larger, strict=True)
        ]
        return np.maximum(half, mixed)


def two_laplace_quantile(level: float, first: float, second: float) -> float:
    """Return c with P(|X + Y| <= c) = level, of independent Laplace numbers with these sds."""
    small, large = sorted((first / math.sqrt(2.0), second / math.sqrt(2.0)))
    if large == 0.0:
        return 0.0
    r = small / large
    if r < 1e-6:
        return large * laplace_sum_quantile(level, 1) * (1.0 + 1e-6)
    if r > 1.0 - 1e-4:
        return large * laplace_sum_quantile(level, 2)
    tail = 1.0 - level

    def excess(x: float) -> float:
        return (math.exp(-x) - r**2 * math.exp(-x / r)) / (1.0 - r**2) - tail

    return float(large * brentq(excess, 0.0, 4.0 - 2.0 * math.log(tail)))


def _summed(release: SampleSums, intervals: base.IntervalOptions) -> SumsResult:
    """Return the sums of a release with intervals."""
    model = TotalModel.from_release(release)
    groups = release.query.kind == "groups"
    names = base.cell_names(release) if groups else release.query.values
    half = model.half_lengths(intervals.level_of_each(len(names)), sampling=intervals.sampling)
    sds = np.sqrt(model.noise_sds**2 + (model.sampling if intervals.sampling else 0.0))
    middle, unit = float(release.middle[0]), float(release.half[0])
    ends = np.array([middle - unit, middle + unit])
    if groups:
        ends = np.array([min(ends[0], 0.0), max(ends[1], 0.0)])
    low, high = release.nobs * ends
    cells = [np.clip(model.totals + shift, low, high) for shift in (0.0, -half, half)]
    rows = zip(names, cells[0], sds, cells[1], cells[2], strict=True)
    clipped = Note(CLIPPED_SUMS.format(middle - unit, middle + unit), "header")
    _, at_bounds = groups_at_bounds(release) if groups else sample_at_bounds(release)
    return SumsResult(
        title="Sums of Groups" if groups else "Sum",
        release=release,
        rows=tuple(base.EstimateRow(name, *map(float, numbers)) for name, *numbers in rows),
        confidence_level=intervals.level,
        ranked_notes=(
            clipped,
            Note(POPULATION_SUMS if intervals.sampling else TABLE_SUMS, "must-read"),
            *intervals.joint_notes(len(names)),
            *at_bounds,
        ),
        target=intervals.target,
        simultaneous=intervals.simultaneous,
    )


@error_boundary
@refuses(base.COLUMN_REFUSALS)
def sum(
    a: ColumnLike | str,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    by: ColumnLike | str | Sequence[str] | None = None,
    bounds: Pair | None = None,
    levels: Sequence[Label] | None = None,
    target: CountTarget = "table",
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> SumsResult:
    """Return the sum of a column, or of its groups, with intervals that account for the noise.

    Parameters
    ----------
    a : array_like, Series or str
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
    by : array_like, str or sequence of str, optional
        Group of each record, the name of the column of groups, or the names of several columns. The result
        then has one sum per group.
    bounds : (low, high), optional
        Public bounds of the values; values outside the bounds are clipped. For a column of `data`, the schema
        declares the bounds.
    levels : sequence, optional
        Public list of all groups, required if `by` is an array.
    target : {"table", "population"}
        Target of the estimates. With "table" (default) the target is the sum in this table, and the intervals
        allow for the noise alone. With "population" the target is the number of records times the mean of the
        population, and the intervals allow for sampling and noise.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
    simultaneous : bool
        Whether the intervals of all groups hold jointly at the confidence level. By default each interval
        holds separately.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian. This
        function refuses "drop".
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
    SumsResult
        Result with ``estimate``, ``bse``, ``table``, ``intervals(...)``, ``plot()`` and ``privacy``.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column does not match its declaration, or the release would exceed
        the limit of the ledger. The error is also raised if the schema declares several rows per unit.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. If `by` is passed, the counts, sums and sums of squares of all groups are released
    together. The noise depends on the width of the bounds, and not on the number of groups.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> x, g = rng.uniform(0, 10, 5000), rng.choice(["a", "b"], 5000)
    >>> r = pi.stats.sum(x, by=g, levels=["a", "b"], bounds=(0, 10), epsilon=1.0, delta=1e-6, rng=0)
    >>> bool(abs(r.estimate - x[g == "a"].sum()) < 200)
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
    intervals = base.IntervalOptions.checked(target, confidence_level, simultaneous)
    refuse_dropping(base.or_default(missing, "raise"), NO_DROPPED_SUMS, INSTEAD_OF_SUMS)
    if by is None:
        base.refuse_group_options(levels, simultaneous)
        request, (value,) = base.request_columns({"a": a}, {"a": base.public_pair(bounds)}, options)
        label = Labels.TOTAL.format(name=value)
        release = request.release(SampleQuery(kind="one sample", values=(value,), label=label))
        near, _ = sample_at_bounds(release)
    else:
        request, value, groups = base.request_by(a, by, bounds, levels, options)
        label = Labels.TOTAL.format(name=Labels.BY.format(values=value, groups=", ".join(groups)))
        release = request.release(SampleQuery(kind="groups", values=(value,), by=groups, label=label))
        near = clip_cautions(release, None)
    result = _summed(release, intervals)
    return replace(result, cautions=base.warn_of(near))
