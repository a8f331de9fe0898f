"""Agreement of sites: tests of equal coefficients, heterogeneity, pooled estimates and deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from privinf.accounting import PrivacyReport
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.agreement import Homogeneity, holm, homogeneity
from privinf.inference.estimate import Estimate, upper_quantile
from privinf.notebook import html_frame
from privinf.results.constraints import Constraints
from privinf.results.export import PortableTable
from privinf.results.simultaneous import SimultaneousResults, simultaneous
from privinf.typing import Floats, RngLike
from privinf.validation import check_fraction, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALONE = "no column has estimates at two sites or more, so there is nothing to compare"
POOLED = "{} - pooled"  # label of the difference between a site and the pooled estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEstimates:
    """Estimates of one column's coefficient at m >= 2 sites.

    Attributes
    ----------
    sites : tuple of m str
    values, bse : ndarray, shape (m,)
    names : tuple of m str
        Names of the coefficients.
    test : Homogeneity
    """

    sites: tuple[str, ...]
    values: Floats
    bse: Floats
    names: tuple[str, ...]
    test: Homogeneity


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Agreement(PortableTable):
    """Test that the sites have equal coefficients, for each column and for all columns together.

    Attributes
    ----------
    columns : mapping of str to SiteEstimates
        By column.
    statistic : float
        Wald statistic of equality in all columns together; chi-square if the sites agree.
    df : int
        Its degrees of freedom: the number of sites less one, summed over columns.
    deviations : SimultaneousResults
        Difference between each site's estimate and the pooled estimate of its column, with intervals that
        cover all differences jointly, and p-values adjusted for all sites and columns.
    alpha : float
        One minus the confidence level of the intervals.
    privacy : PrivacyReport
        Cost of the fit.
    nobs : int
        Number of records of all sites.
    cautions : tuple of (category, text)
        Warnings of the fit.

    Notes
    -----
    **Privacy.** Post-processing of the fit's releases: no cost.

    `privinf.inference.agreement` has the formulas. Covariances between sites count: where sites share noise,
    the statistic is not the classical one, which assumes independent estimates.
    """

    columns: Mapping[str, SiteEstimates]
    statistic: float
    df: int
    deviations: SimultaneousResults
    alpha: float
    privacy: PrivacyReport
    nobs: int
    cautions: tuple[tuple[type[Warning], str], ...] = ()

    @property
    def title(self) -> str:
        """Title of the table."""
        return "Agreement of sites"

    @property
    def pvalue(self) -> float:
        """p-value of equality in all columns together."""
        return float(stats.chi2.sf(self.statistic, self.df))

    @property
    def pvalues(self) -> pd.Series[float]:
        """p-values of equality by column, adjusted for the number of columns (Holm)."""
        single = np.array([column.test.pvalue for column in self.columns.values()])
        return pd.Series(holm(single), list(self.columns), name="pvalues")

    def summary_frame(self) -> pd.DataFrame:
        """Return one row per column of the model.

        Columns ``sites`` (their number), ``pooled``, ``std err``, ``low`` and ``high`` (pooled estimate with
        its interval, valid if the sites agree), ``Q``, ``df``, ``P>Q``, ``Holm`` (adjusted for the number of
        columns), ``I2``, ``I2 low`` and ``I2 high``.

        Returns
        -------
        DataFrame
            One row per column.
        """
        rows = []
        for column in self.columns.values():
            test = column.test
            half = upper_quantile(self.alpha / 2.0) * test.pooled_se
            pooled = (test.pooled, test.pooled_se, test.pooled - half, test.pooled + half)
            share = (test.i_squared, *test.i_squared_interval(self.alpha))
            rows.append((len(column.sites), *pooled, test.statistic, test.df, test.pvalue, *share))
        heads = ["sites", "pooled", "std err", "low", "high", "Q", "df", "P>Q", "I2", "I2 low", "I2 high"]
        table = pd.DataFrame(rows, list(self.columns), heads)
        table.insert(heads.index("I2"), "Holm", self.pvalues)
        return table

    def tidy(self) -> pd.DataFrame:
        """Return one row per column of the model, as `Results.tidy` names things.

        Columns ``term``, ``sites``, ``estimate`` (pooled), ``std_error``, ``conf_low``, ``conf_high``,
        ``statistic`` (Q), ``df``, ``p_value``, ``p_value_adjusted``, ``i_squared``, ``i_squared_low`` and
        ``i_squared_high``.

        Returns
        -------
        DataFrame
            One row per column.
        """
        names = {
            "pooled": "estimate",
            "std err": "std_error",
            "low": "conf_low",
            "high": "conf_high",
            "Q": "statistic",
            "P>Q": "p_value",
            "Holm": "p_value_adjusted",
            "I2": "i_squared",
            "I2 low": "i_squared_low",
            "I2 high": "i_squared_high",
        }
        table = self.summary_frame().rename(columns=names)
        return table.rename_axis("term").reset_index()

    def plot(self, column: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot a forest: the interval of every site, and the pooled one below them.

        Parameters
        ----------
        column : str, optional
            Column of the model; it may be left out where there is only one.
        ax : matplotlib Axes, optional
            Axes to plot on. By default new axes are made.

        Returns
        -------
        matplotlib Axes
            The axes with the plot.

        Raises
        ------
        ArgumentError
            The column is unknown, or left out where there are several.
        NotAvailableError
            matplotlib is not installed (``privinf[plots]``).
        """
        from privinf.plotting import forest

        return forest(self, self._chosen(column), ax=ax)

    def _chosen(self, column: str | None) -> str:
        if column is None and len(self.columns) == 1:
            return next(iter(self.columns))
        if column not in self.columns:
            raise ArgumentError(
                f"column= must be one of the compared columns ({', '.join(self.columns)}), got "
                f"{'nothing' if column is None else shown(column)}"
            )
        return str(column)

    @property
    def _head(self) -> str:
        return (
            f"{self.title}, {', '.join(self.columns)}: chi2 = {self.statistic:.4g} with {self.df} degrees of "
            f"freedom, p = {self.pvalue:.4g}"
        )

    def __repr__(self) -> str:
        return f"{self._head}\n{self.summary_frame().to_string(float_format='%.4g')}"

    def _repr_html_(self) -> str:
        return html_frame(self.summary_frame(), self._head)


def agreement(
    estimate: Estimate,
    labels: Mapping[str, Sequence[tuple[str, int]]],
    *,
    alpha: float,
    rng: RngLike,
    privacy: PrivacyReport,
    cautions: Sequence[tuple[type[Warning], str]] = (),
) -> Agreement:
    """Return the tests of equality between sites.

    Parameters
    ----------
    estimate : Estimate
        Of all sites' coefficients.
    labels : mapping of str to sequence of (str, int)
        By column: its sites, and the positions of their coefficients in the estimate. Columns with fewer than
        two sites are left out.
    alpha : float
    rng : None, int or Generator
        Seed or generator of the simulation that computes the simultaneous intervals.
    privacy : PrivacyReport
    cautions : sequence of (category, text)

    Raises
    ------
    NotAvailableError
        No column has two sites, or the estimate has no covariance.
    """
    check_fraction(alpha, "alpha")
    cov = estimate.covariance
    columns = {}
    contrasts = []
    for column, members in labels.items():
        if len(members) < 2:
            continue
        places = [place for _, place in members]
        test = homogeneity(estimate.params[places], cov[np.ix_(places, places)])
        columns[column] = SiteEstimates(
            sites=tuple(site for site, _ in members),
            values=estimate.params[places],
            bse=estimate.bse[places],
            names=tuple(estimate.names[place] for place in places),
            test=test,
        )
        rows = np.zeros((len(places), len(estimate.params)))
        rows[:, places] = np.eye(len(places)) - test.weights
        contrasts.append(rows)
    if not columns:
        raise NotAvailableError(ALONE)
    differences = np.vstack([_differences(rows) for rows in contrasts])
    away, spread = estimate.linear(differences)
    restrictions = Constraints(
        np.vstack(contrasts),
        np.zeros(sum(map(len, contrasts))),
        tuple(POOLED.format(name) for column in columns.values() for name in column.names),
    )
    return Agreement(
        columns=columns,
        statistic=float(away @ np.linalg.solve(spread, away)),
        df=len(differences),
        deviations=simultaneous(estimate, restrictions, alpha=alpha, method="gaussian", draws=None, rng=rng),
        alpha=alpha,
        privacy=privacy,
        nobs=estimate.nobs,
        cautions=tuple(cautions),
    )


def _differences(deviations: Floats) -> Floats:
    """Return the differences between the first site and the others, from deviations of all sites."""
    return np.asarray(deviations[1:] - deviations[0])


def by_column(
    names: Sequence[tuple[Any, str]], chosen: Sequence[str] | None
) -> dict[str, list[tuple[str, int]]]:
    """Return sites and positions by column, of coefficients that are named by (site, column).

    Raises ArgumentError for columns that no site has.
    """
    columns: dict[str, list[tuple[str, int]]] = {}
    for place, (site, column) in enumerate(names):
        columns.setdefault(column, []).append((str(site), place))
    if chosen is None:
        return columns
    if unknown := [column for column in chosen if column not in columns]:
        raise ArgumentError(
            f"no site has a coefficient of {', '.join(map(shown, unknown))}; the columns are "
            f"{', '.join(columns)}"
        )
    return {column: columns[column] for column in dict.fromkeys(chosen)}
