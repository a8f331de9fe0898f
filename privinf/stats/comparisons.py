"""Two samples and more: Welch's t-test and analysis of variance, contrasts and simultaneous intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, HeavyTailWarning, NotAvailableError, SchemaError
from privinf.inference.quantiles import MeanClip
from privinf.mechanisms.samples import SampleQuery, SampleSums, joined_rows
from privinf.results.notes import Note
from privinf.results.rendering import (
    SEVERAL_PAIRS,
    PvalueBound,
    PvalueFrame,
    SummaryColumn,
    shown_pvalue,
)
from privinf.schema import Factor, Schema
from privinf.stats import base
from privinf.stats.groups import (
    FIRST,
    LEAST_RANK,
    SECOND,
    GroupModel,
    clip_cautions,
    contrast_set,
    contrast_weights,
    explained_shares,
    groups_at_bounds,
    standardized_difference,
    welch,
)
from privinf.stats.quantiles import CoreClip, clipped_group_means, clipped_groups
from privinf.stats.values_at_bounds import Cautions
from privinf.typing import (
    Alternative,
    Calibration,
    ClipRule,
    ColumnLike,
    CountTarget,
    Label,
    Missing,
    NoiseChoice,
    Pair,
    RngLike,
    SourceName,
    Table,
)
from privinf.validation import check_choice, check_flag
from privinf.wire import Labels

if TYPE_CHECKING:
    import pandas as pd

MEANS = "Means of Groups"
FORMULA = "the formula {0!r} must have the form 'values ~ groups', with two columns of the schema"
RARE = (
    "The noise is large relative to the number of records of {}, so intervals are wide "
    "and may reach the bounds."
)
NO_GROUPS = (
    "the groups are missing: pass a second argument (the labels of the groups or the second sample), "
    "or a formula such as 'values ~ groups' as the first argument"
)
NO_LEVELS = (
    "column {!r} has no declared levels, so it cannot be the groups: declare its levels in the schema (the "
    "bounds (0, 1) if it is 0 or 1), or pass levels="
)
TWO_SAMPLES = (
    "two samples must be two arrays; to compare columns of a table, pass a formula and the table, as in "
    "'income ~ sex', data"
)
# What callers may expect of a test of two samples, and of one of several groups.
TWO_REFUSALS = dict.fromkeys(
    ("by", "groups"),
    "is not an argument of a test of two samples: pass a formula and its table, as in 'income ~ sex', data",
)
GROUPS_REFUSALS = {
    "by": "is not an argument here: pass the column of the groups as groups=, or a formula 'income ~ region'"
}
DF_OF_WELCH = (
    "Df is Welch's number of degrees of freedom of the standard error; the noise is part of it, so it is not "
    "the number of records less two."
)
DF_OF_ANOVA = (
    "Df is the number of groups less one, and Welch's number of degrees of freedom of the standard errors, "
    "of which the noise is part."
)
SIMULTANEOUS = "Simultaneous Differences"
OF_DIFFERENCE = "confidence_interval() and pairwise() return the difference {}."
JOINT_PAIRS = "The intervals hold jointly, and the p-values are adjusted for the number of pairs."
SEPARATE_PAIRS = (
    "Each interval and p-value holds separately: among many pairs some differ by chance "
    "(simultaneous=True allows for that)."
)
LAPLACE_TAILS = (
    "The p-values allow for the long tails of Laplace noise, so they are larger than those of Student's "
    "distribution for the same estimates and standard errors."
)
NOT_ONE_PAIR = (
    "the result has {} groups, so it has no single difference of means: pairwise() returns the differences "
    "of all pairs with intervals, contrast(weights) returns one of them, and means() the mean of each group"
)
TESTS_OF_MEANS = (
    "pairwise() of the result compares the means of all pairs, with p-values in .pvalues, at no further "
    "cost; pi.stats.anova_oneway tests that all means are equal"
)
TESTS_OF_PAIRS = "pvalues has the p-value of each pair"
SHIFTED_GROUPS = (
    "Values are clipped to [{:.6g}, {:.6g}], which may shift the mean of group {} {}, and of larger groups "
    "by less; intervals and p-values allow for these shifts, so they are for means of the original values."
)
SHIFTED_ALL = (
    "Values are clipped to [{:.6g}, {:.6g}], which may shift the means; intervals and p-values allow for "
    "this, so they are for means of the original values."
)
UNSHIFTED_GROUPS = (
    "Values are clipped to the public bounds [{:.6g}, {:.6g}]; the intervals are for means of the clipped "
    "values."
)
UNSEEN_BY = (
    "of {1} values, clipping may have changed {0} of clipping; the intervals extrapolate the tails. The "
    "intervals do not cover a few extreme values; if they are all in group {2}, clipping them could move its "
    "mean {3}. With tighter bounds, the intervals rely less on this extrapolation"
)
HIDDEN_SHARES = (
    "The test is valid, but the noise hides the differences between groups or the variance of the values, so "
    "eta squared and omega squared are not available (nan)."
)
NOISY_SHARES = (
    "The privacy noise alone causes a standard error of {:.2g} in eta squared and in omega squared."
)
CLIPPED_GROUPS = (
    "The means are of values clipped to the public bounds; the group of each row is also protected."
)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class GroupsResult(base.StatResult):
    """Means of groups and the test that they are equal, from one noisy release.

    The attribute `rows` has the means of the groups. In a result of `ttest_ind`, the first row is the
    difference between the two means. The class also has all attributes of `StatResult`.

    Attributes
    ----------
    clip : clip, optional
        Clipping thresholds of the values, if they were computed from noisy counts; otherwise None. In a
        result of `pi.stats.mean`, intervals and p-values allow for what clipping may have changed, and are
        for means of the original values. In a result of a test they are for means of clipped values.
    target : {"population", "table"}
        Target of the intervals of means: means of the population, or of this table.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    clip: CoreClip | MeanClip | None = None
    target: CountTarget = "population"

    @property
    def _tests(self) -> str:
        return TESTS_OF_MEANS

    @property
    def groups(self) -> tuple[Any, ...]:
        """Levels that define the groups, in order. With several factors, each group is a tuple of levels."""
        levels = self.release.levels
        return levels[0] if len(levels) == 1 else tuple(product(*levels))

    def confidence_interval(self, confidence_level: float = 0.95) -> base.ConfidenceInterval:
        """Return the interval of the difference in means (first minus second).

        The interval is one-sided if the test of the result is one-sided.

        Parameters
        ----------
        confidence_level : float
            Confidence level of the interval, between 0 and 1.

        Returns
        -------
        (low, high)
            A named tuple, whose ``difference`` names what is subtracted from what: ``"no - yes"``.

        Raises
        ------
        NotAvailableError
            Raised if there are not exactly two groups. For more groups use `pairwise`, `contrast` or `means`.
        """
        level = base.check_level(confidence_level)
        if len(self.groups) != 2:
            raise NotAvailableError(NOT_ONE_PAIR.format(len(self.groups)))
        model = GroupModel.released(self.release, self.clip)
        unit = float(self.release.half[0])
        largest = unit * _range(model)
        ends = base.ConfidenceInterval(-largest, largest)

        def two_sided(at: float) -> base.ConfidenceInterval:
            low, high = model.first_difference(at)[0]
            return base.ConfidenceInterval(unit * low, unit * high)

        low, high = base.one_sided(two_sided, level, self.alternative, ends)
        return base.DifferenceInterval(low, high, _difference(self.release))

    def means(
        self,
        confidence_level: float | None = None,
        *,
        target: CountTarget | None = None,
        simultaneous: bool | None = None,
    ) -> base.StatResult:
        """Return the means of the groups with intervals, from the same release.

        Parameters
        ----------
        confidence_level : float, optional
            Confidence level of the intervals, between 0 and 1. The default is the level of this result.
        target : {"population", "table"}, optional
            Target: means of the population, whose intervals allow for sampling and noise, or means of this
            table, whose intervals allow for noise alone. The default is the target of this result.
        simultaneous : bool, optional
            Whether all intervals hold jointly at the confidence level. By default it is the same as in this
            result.

        Returns
        -------
        StatResult
            Table with one row per group.
        """
        chosen = base.IntervalOptions.changed(self, target, confidence_level, simultaneous)
        return self._with_rows(
            MEANS,
            _mean_rows(self.release, chosen, self.clip),
            chosen.level,
            _mean_notes(self, chosen),
            simultaneous=chosen.simultaneous,
        )

    def contrast(
        self, weights: Sequence[float] | Mapping[Label, float], confidence_level: float = 0.95
    ) -> base.StatResult:
        """Return a contrast of the means of groups with its interval, from the same release.

        Parameters
        ----------
        weights : sequence or mapping
            Weights of the groups, as a sequence in the order of the groups or as a mapping from levels to
            weights. The weights must add up to 0.
        confidence_level : float
            Confidence level of the interval, between 0 and 1.

        Returns
        -------
        StatResult
            The contrast, in the units of the data.
        """
        level = base.check_level(confidence_level)
        c = contrast_weights(weights, self.groups)
        model = GroupModel.released(self.release, self.clip)
        unit = self.release.half[0]
        low, high = contrast_set(model, c, level)
        sd = math.sqrt(float(((c * model.mean_sds()) ** 2).sum()))
        row = base.EstimateRow(
            name=" ".join(f"{x:+g}[{g}]" for x, g in zip(c, base.cell_names(self.release), strict=True) if x),
            estimate=unit * float(c @ model.means),
            bse=unit * sd,
            low=unit * low,
            high=unit * high,
        )
        return self._with_rows("Contrast of Groups", (row,), level)

    def pairwise(self, confidence_level: float = 0.95, *, simultaneous: bool = True) -> PairsResult:
        """Return the differences of all pairs of groups, with intervals and p-values.

        Parameters
        ----------
        confidence_level : float
            Level of the intervals, between 0 and 1.
        simultaneous : bool
            Whether all intervals hold jointly at this level, and p-values are adjusted for the number of
            pairs; otherwise each holds separately.

        Returns
        -------
        PairsResult
            One row per pair, with a p-value of no difference; ``.pvalues`` has all of them.
        """
        level = base.check_level(confidence_level)
        jointly = check_flag(simultaneous, "simultaneous")
        model = GroupModel.released(self.release, self.clip)
        unit = float(self.release.half[0])
        pairs = np.array(list(combinations(range(len(self.groups)), 2)))
        first, second = pairs.T
        quantiles, pvalues = model.pairs(first, second, level, jointly=jointly)
        low, high = model.difference_sets(first, second, quantiles)
        sd = model.sds(first, second)
        names = base.cell_names(self.release)
        rows = tuple(
            base.EstimateRow(f"{names[g]} - {names[h]}", unit * (model.means[g] - model.means[h]), *cells)
            for (g, h), *cells in zip(pairs, unit * sd, unit * low, unit * high, strict=True)
        )
        return PairsResult(
            title=SIMULTANEOUS if jointly else "Differences",
            release=self.release,
            rows=rows,
            confidence_level=level,
            simultaneous=jointly,
            simulated=jointly or model.laplace,
            ranked_notes=(
                *((Note(LAPLACE_TAILS, "table"),) if model.laplace else ()),
                *_group_notes(self.release, self.clip),
            ),
            cautions=self.cautions,
            pair_pvalues=tuple(map(float, pvalues)),
        )

    def to_pandas(self) -> pd.Series[float]:
        """Return the means of the groups as a pandas series.

        Returns
        -------
        Series
            One mean per group, in the order of the levels. If several factors define the groups, the index
            has one level per factor, so that ``.unstack()`` makes a table.
        """
        import pandas as pd

        release = self.release
        model = GroupModel.released(release)
        names = list(release.query.by)
        index = (
            pd.Index(release.levels[0], name=names[0])
            if len(names) == 1
            else pd.MultiIndex.from_product(release.levels, names=names)
        )
        means = release.middle[0] + release.half[0] * model.means
        return pd.Series(means, index, name=release.query.values[0])

    def _with_rows(
        self,
        title: str,
        rows: tuple[base.EstimateRow, ...],
        level: float,
        notes: tuple[Note, ...] = (),
        *,
        simultaneous: bool = False,
    ) -> base.StatResult:
        return base.StatResult(
            title=title,
            release=self.release,
            rows=rows,
            confidence_level=level,
            ranked_notes=(*notes, *_group_notes(self.release, self.clip)),
            cautions=self.cautions,
            simultaneous=simultaneous,
        )


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class PairsResult(base.StatResult):
    """Differences between all pairs of groups; see `StatResult` for the other attributes.

    The attribute `pvalues` has the p-value of each pair. If there is only one pair, `pvalue` is its p-value.

    Attributes
    ----------
    pair_pvalues : tuple of float
        Two-sided p-values of no difference, one per row.
    simulated : bool
        Whether the p-values come from simulated releases, and are therefore at least `least_pvalue`.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    pair_pvalues: tuple[float, ...]
    simulated: bool = False

    @property
    def _tests(self) -> str:
        return TESTS_OF_PAIRS

    @property
    def pvalue(self) -> float:
        """Two-sided p-value of no difference, if there is only one pair.

        Raises
        ------
        NotAvailableError
            Raised if there are several pairs, whose p-values are in `pvalues`.
        """
        if len(self.pair_pvalues) != 1:
            raise NotAvailableError(SEVERAL_PAIRS.format(len(self.pair_pvalues)))
        (pvalue,) = self.pair_pvalues
        return PvalueBound(pvalue) if self.simulated and pvalue <= LEAST_RANK else pvalue

    @property
    def least_pvalue(self) -> float:
        """Smallest possible p-value of simulated releases; 0 without simulation."""
        return LEAST_RANK if self.simulated else 0.0

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of no difference, by the name of the pair; at least `least_pvalue`."""
        import pandas as pd

        return pd.Series(self.pair_pvalues, [row.name for row in self.rows], name="pvalue")

    @property
    def table(self) -> pd.DataFrame:
        """Estimates, standard errors, p-values and intervals; a p-value that is a bound prints with "<="."""
        table = super(PairsResult, self).table
        table.insert(2, "pvalue", self.pair_pvalues)
        return PvalueFrame.from_frame(table, ["pvalue"], self.least_pvalue)

    def tidy(self) -> pd.DataFrame:
        """Return a table with one row per pair, which also has the column ``p_value``.

        Returns
        -------
        DataFrame
            One row per pair.
        """
        frame = super(PairsResult, self).tidy()
        frame.insert(3, "p_value", self.pair_pvalues)
        return frame

    @property
    def _pvalue_column(self) -> SummaryColumn:
        cells = [shown_pvalue(pvalue, self.least_pvalue, digits=3) for pvalue in self.pair_pvalues]
        note = JOINT_PAIRS if self.simultaneous else SEPARATE_PAIRS
        return SummaryColumn(name="P>|t|", cells=cells, place=2, note=note)


@error_boundary
@refuses(TWO_REFUSALS)
def ttest_ind(
    a: ColumnLike | str,
    b: Table | None = None,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    bounds: Pair | None = None,
    clip: ClipRule = "bounds",
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> GroupsResult:
    """Test that two samples have the same mean, by Welch's t-test; the variances of the samples may differ.

    Parameters
    ----------
    a : array_like or str
        The first sample. A formula such as "income ~ sex" is accepted too. In this case, pass the table that
        contains the columns of the formula as `b` or as `data`. The column on the right side of the formula
        must have two levels. Instead of a sample, `a` may also be the name of the column of values in `data`.
    b : array_like, str or table, optional
        The second sample. If `a` is a formula, `b` may be the table. If `a` is the name of a column, `b` is
        the name of the column of the groups.
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
    bounds : (low, high), optional
        Public bounds of the values; values outside the bounds are clipped. For a column of `data`, the schema
        declares the bounds.
    clip : {"bounds", "auto"}
        Clipping of the values. With "bounds" (default) values are clipped at the public bounds. With "auto",
        which is useful if the bounds are too wide, the clipping thresholds are computed from noisy counts.
        The test then compares the means of clipped values.
    alternative : {"two-sided", "less", "greater"}
        Alternative hypothesis: the mean of the first sample (or level) differs from the mean of the second
        sample, or is less or greater.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
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
    GroupsResult
        Result with ``statistic``, ``pvalue``, ``df`` and ``confidence_interval()`` of the difference. Its
        attribute ``effects`` contains Cohen's d.

    Notes
    -----
    With ``clip="auto"`` a fifth of mu^2 is spent on a noisy distribution function of all values, from which
    the clipping thresholds are computed. The thresholds are at least 1.5 standard deviations from the median,
    and farther away if n mu^2 is large, but never outside the public bounds. The test, the estimates and the
    intervals are then about means of clipped values (winsorized means). If all groups have the same
    distribution, the means of clipped values are equal. If groups have the same mean but different variances,
    the means of clipped values may differ. The attribute ``null`` and the notes of the result state that
    means of clipped values are compared. A ChangedTargetWarning is issued if a notable share of the
    values may be beyond the thresholds.

    **Privacy.** Neighboring tables differ in one record, with its value and its group (replace-one). The
    total number of records is public, and the size of each sample is private. The counts, sums and sums of
    squares of the samples are released together.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(5.5, 1.0, 3000), rng.normal(5.0, 1.5, 2000)
    >>> r = pi.stats.ttest_ind(a, b, bounds=(0, 10), epsilon=1.0, delta=1e-6, rng=0)
    >>> low, high = r.confidence_interval()
    >>> bool(r.pvalue < 0.001 and low < a.mean() - b.mean() < high)
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
    b, options = base.formula_table(a, b, options)
    request, query = request_two_samples(a, b, bounds, options)
    if len(request.schema[query.by[0]].levels) != 2:  # type: ignore[union-attr]
        raise SchemaError(
            f"{query.by[0]!r} must have exactly two levels for ttest_ind: use anova_oneway for more"
        )
    return _two_groups(*_group_sums(request, query, clip), alternative, level)


@error_boundary
@refuses(GROUPS_REFUSALS)
def anova_oneway(
    values: ColumnLike | str,
    groups: Table | None = None,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    bounds: Pair | None = None,
    levels: Sequence[Label] | None = None,
    clip: ClipRule = "bounds",
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> GroupsResult:
    """Test that groups have the same mean, by Welch's F test; the variances of groups may differ.

    Parameters
    ----------
    values : array_like or str
        Values of the records, or the name of their column in `data`. A formula such as "income ~ carrier" is
        accepted too; it names columns of the table that is passed as `groups` or `data`.
    groups : array_like, str or table, optional
        Group of each record, or the name of the column of the groups. If `values` is a formula, pass the
        table as `groups` or as `data`.
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
    bounds : (low, high), optional
        Public bounds of the values; values outside the bounds are clipped. For a column of `data`, the schema
        declares the bounds.
    levels : sequence, optional
        Public list of all groups, required if `groups` is an array.
    clip : {"bounds", "auto"}
        Clipping of the values. With "bounds" (default) values are clipped at the public bounds. With "auto",
        which is useful if the bounds are too wide, the clipping thresholds are computed from noisy counts.
        The test then compares the means of clipped values.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1. The level applies to the interval of each mean
        separately.
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
    GroupsResult
        Result with ``statistic``, ``pvalue``, ``df``, eta squared and omega squared. Its methods ``means()``,
        ``contrast(...)`` and ``pairwise()`` use the same release.

    Notes
    -----
    **Privacy.** There is one release, whose noise does not depend on the number of groups. The release costs
    `epsilon`, `mu` or `rho`. Rows are read only after the ledger has accepted the release.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> g = rng.choice(["a", "b", "c"], 6000)
    >>> x = rng.normal(5.0, 1.0, 6000) + 0.3 * (g == "c")
    >>> r = pi.stats.anova_oneway(x, g, levels=["a", "b", "c"], bounds=(0, 10), mu=0.5, rng=0)
    >>> bool(r.pvalue < 0.001), r.pairwise().table.shape
    (True, (3, 5))
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
    groups, options = base.formula_table(values, groups, options)
    request, query = request_groups(values, groups, bounds, levels, options)
    release, chosen_clip = _group_sums(request, query, clip)
    model = GroupModel.released(release).present()
    F, df, pvalue = model.anova()
    shares, sd = explained_shares(model)
    of_noise = HIDDEN_SHARES if math.isnan(sd) else NOISY_SHARES.format(sd)
    value = query.values[0]
    by = query.by[0]
    return GroupsResult(
        title="One-Way ANOVA (Welch)",
        release=release,
        rows=_mean_rows(release, base.IntervalOptions(level=level)),
        clip=chosen_clip,
        confidence_level=level,
        test=base.NullTest(
            statistic=F,
            pvalue=pvalue,
            df=(len(model.N) - 1.0, df),
            least_pvalue=LEAST_RANK if model.laplace else 0.0,
            null=f"means of {value}{_among(chosen_clip)} equal over {by}",
        ),
        effects=shares,
        ranked_notes=(
            *((of_noise,) if model.a > 0.0 else ()),
            *_group_notes(release, chosen_clip),
            DF_OF_ANOVA,
        ),
        cautions=clip_cautions(release, chosen_clip),
    )


# ---- queries


def formula_columns(formula: str) -> tuple[str, str]:
    """Return the names of the values and of the groups of a formula "values ~ groups"."""
    parts = [part.strip() for part in formula.split("~")]
    if len(parts) != 2 or not all(parts):
        raise ArgumentError(FORMULA.format(formula))
    return parts[0], parts[1].removeprefix("C(").removesuffix(")").strip()


def request_groups(
    values: object,
    groups: object,
    bounds: Pair | None,
    levels: Sequence[Label] | None,
    options: base.SampleOptions,
) -> tuple[base.SampleRequest, SampleQuery]:
    """Return values and groups, from arrays or a formula, and the query that compares them."""
    if isinstance(values, str) and groups is None:
        values, groups = formula_columns(values)
    if groups is None:
        raise ArgumentError(NO_GROUPS)
    declared = {"values": base.public_pair(bounds), "groups": base.public_levels(levels)}
    request, (value, by) = base.request_columns({"values": values, "groups": groups}, declared, options)
    declared_by = request.schema[by]
    if not isinstance(declared_by, Factor):
        if (declared_by.low, declared_by.high) != (0.0, 1.0):
            raise SchemaError(NO_LEVELS.format(by))
        request = base.with_levels(request, (by,))
    return request, SampleQuery(
        kind="groups", values=(value,), by=(by,), label=Labels.BY.format(values=value, groups=by)
    )


def request_two_samples(
    a: object, b: object, bounds: Pair | None, options: base.SampleOptions
) -> tuple[base.SampleRequest, SampleQuery]:
    """Return two samples, from a formula, from names of values and groups, or from two arrays."""
    if isinstance(a, str) and (b is None or isinstance(b, str)):
        return request_groups(a, b, bounds, None, options)
    return _request_pair(a, b, bounds, options)


def _request_pair(
    a: object, b: object, bounds: Pair | None, options: base.SampleOptions
) -> tuple[base.SampleRequest, SampleQuery]:
    """Return two samples stacked into one table, and the query that compares them."""
    if b is None:
        raise ArgumentError(NO_GROUPS)
    if isinstance(b, str) or isinstance(a, str):
        raise ArgumentError(TWO_SAMPLES)
    if options.data is not None or options.schema is not None:
        raise ArgumentError(
            "data= and schema= require a formula as the first argument, as in 'income ~ sex'; for two "
            "samples that are arrays, pass bounds="
        )
    pair = base.public_pair(bounds)
    if pair is None:
        raise SchemaError("the two samples have no public bounds: pass bounds=(low, high)")
    rows = joined_rows((a, b), ("a", "b"), base.or_default(options.missing, "raise"))
    request = base.SampleRequest(rows, Schema({"value": pair, "group": ["a", "b"]}), options)
    return request, SampleQuery(kind="groups", values=("value",), by=("group",), label=Labels.TWO_SAMPLES)


def _group_sums(
    request: base.SampleRequest, query: SampleQuery, clip: ClipRule
) -> tuple[SampleSums, CoreClip | None]:
    """Release the sums that compare groups, and warn where the means are those of clipped values."""
    bounded = check_choice(clip, ClipRule, "clip") == "bounds"
    release_and_clip = (request.release(query), None) if bounded else clipped_groups(request, query)
    base.warn_of(clip_cautions(*release_and_clip))
    return release_and_clip


# ---- results


def group_means(
    request: base.SampleRequest,
    query: SampleQuery,
    clip: ClipRule,
    intervals: base.IntervalOptions,
) -> GroupsResult:
    """Return the means of groups, from one release that can compare them too."""
    chosen: MeanClip | None = None
    if check_choice(clip, ClipRule, "clip") == "auto":
        release, chosen = clipped_group_means(request, query, intervals.level)
        rows = _mean_rows(release, intervals, chosen)
        cautions = _unseen(release, chosen, rows)
    else:
        release = request.release(query)
        rows = _mean_rows(release, intervals)
        cautions = clip_cautions(release, None)
    result = GroupsResult(
        title=MEANS,
        release=release,
        rows=rows,
        clip=chosen,
        confidence_level=intervals.level,
        cautions=base.warn_of(cautions),
        target=intervals.target,
        simultaneous=intervals.simultaneous,
    )
    return replace(result, ranked_notes=(*_mean_notes(result, intervals), *_group_notes(release, chosen)))


def _unseen(release: SampleSums, clip: MeanClip, rows: Sequence[base.EstimateRow]) -> Cautions:
    """Return the caution of rows that the noise hides, if they could move a group's mean out of its interval.

    An interval that is the range of the public bounds holds every mean.
    """
    widest = (1.0 - 1e-9) * (clip.high + clip.rest[1] - clip.low + clip.rest[0])
    affected = []
    for row, people in zip(rows, GroupModel.released(release).N, strict=True):
        half = 0.5 * (row.high - row.low)
        count = max(float(people), 1.0, *clip.most)  # no more values of a group may lie beyond than it has
        if clip.hides(count, half) and 2.0 * half < widest:
            affected.append((max(clip.worst(count)) / half, row.name, clip.worst_shift(count)))
    if not affected:
        return ()
    _, name, shift = max(affected)
    return ((HeavyTailWarning, UNSEEN_BY.format(clip.changed(), _values(release), name, shift)),)


def _values(release: SampleSums) -> int:
    """Return the number of rows with a value, which is an estimate where the others were dropped."""
    return release.nobs if release.complete is None else release.complete.rows


def _range(model: GroupModel) -> float:
    """Return the largest difference between two means, in units in which clipped values are in [-1, 1]."""
    return 2.0 if model.tails is None else model.tails.range


def _two_groups(
    release: SampleSums, clip: CoreClip | None, alternative: Alternative, level: float
) -> GroupsResult:
    model = GroupModel.released(release)
    unit = float(release.half[0])
    t, df, tail = welch(model)
    agrees = (t > 0.0) == (alternative == "greater")
    pvalue = 2.0 * tail if alternative == "two-sided" else tail if agrees else 1.0 - tail
    first, second = release.levels[0]
    value = release.query.values[0]
    size, size_ends = standardized_difference(model, level)
    sd = float(model.sds(FIRST, SECOND)[0])
    estimate = float(model.means[0] - model.means[1])
    result = GroupsResult(
        title="Welch's t-Test",
        release=release,
        rows=(),
        confidence_level=level,
        test=base.NullTest(
            statistic=t,
            pvalue=pvalue,
            df=df,
            least_pvalue=LEAST_RANK / (1.0 if alternative == "two-sided" else 2.0) if model.laplace else 0.0,
            null=f"mean of {value}{_among(clip)} equal in {first} and {second}",
            alternative=alternative,
        ),
        effects={base.COHENS_D: size},
        effect_intervals={base.COHENS_D: base.ConfidenceInterval(*size_ends)},
        clip=clip,
        ranked_notes=(*_group_notes(release, clip), DF_OF_WELCH),
        cautions=clip_cautions(release, clip),
    )
    ends = result.confidence_interval(level)
    row = base.EstimateRow(f"{first} - {second}", unit * estimate, unit * sd, *ends)
    means = _mean_rows(release, base.IntervalOptions(level=level))
    object.__setattr__(result, "rows", (row, *means))
    return result


def _difference(release: SampleSums) -> str:
    """Return which of two groups' means is subtracted from which."""
    first, second = base.cell_names(release)
    return f"{first} - {second}"


def _mean_notes(result: GroupsResult, intervals: base.IntervalOptions) -> tuple[Note, ...]:
    """Return the notes on what the intervals of means are for."""
    notes = (*base.target_notes(intervals.target), *intervals.joint_notes(len(result.groups)))
    if len(result.groups) != 2:
        return notes
    return *notes, Note(OF_DIFFERENCE.format(_difference(result.release)), "table")


def _mean_rows(
    release: SampleSums, intervals: base.IntervalOptions, clip: CoreClip | MeanClip | None = None
) -> tuple[base.EstimateRow, ...]:
    model = GroupModel.released(release, clip)
    middle = release.middle[0]
    unit = release.half[0]
    names = base.cell_names(release)
    low, high = model.mean_sets(intervals.level_of_each(len(names)), sampling=intervals.sampling)
    sds = model.mean_sds(sampling=intervals.sampling)
    cells = np.column_stack(
        [middle + unit * model.means, unit * sds, middle + unit * low, middle + unit * high]
    )
    return tuple(base.EstimateRow(name, *map(float, row)) for name, row in zip(names, cells, strict=True))


def _group_notes(release: SampleSums, clip: CoreClip | MeanClip | None) -> tuple[str | Note, ...]:
    model = GroupModel.released(release)
    hidden = [
        name for name, count in zip(base.cell_names(release), model.N, strict=True) if count < 3.0 * model.a
    ]
    if clip is None:
        target: tuple[str | Note, ...] = (Note(CLIPPED_GROUPS, "header"), *groups_at_bounds(release)[1])
    elif isinstance(clip, CoreClip):
        target = (Note(clip.note(), "header"),)
    else:
        target = _clip_notes(clip, model, release)
    return (*target, RARE.format(", ".join(hidden))) if hidden else target


def _clip_notes(clip: MeanClip, model: GroupModel, release: SampleSums) -> tuple[Note, ...]:
    """Return the notes on clipping whose effect is part of the intervals of means."""
    visible = np.flatnonzero(np.maximum(3.0 * model.a, 1.0) < model.N)
    if not clip.shift(model.n):
        note = UNSHIFTED_GROUPS.format(clip.low, clip.high)
    elif not len(visible):
        note = SHIFTED_ALL.format(clip.low, clip.high)
    else:
        smallest = int(visible[np.argmin(model.N[visible])])
        shift = clip.shift(float(model.N[smallest]))
        note = SHIFTED_GROUPS.format(clip.low, clip.high, base.cell_names(release)[smallest], shift)
    return Note(note, "header"), Note(clip.counts(_values(release)), "detail")


def _among(clip: CoreClip | None) -> str:
    return "" if clip is None else f" clipped to [{clip.low:.6g}, {clip.high:.6g}]"
