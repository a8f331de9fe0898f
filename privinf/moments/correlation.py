"""Means, correlations and partial correlations of the columns of one release of second moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries, warn
from privinf.errors import (
    ArgumentError,
    ChangedTargetWarning,
    NotAvailableError,
    WeakIdentificationWarning,
)
from privinf.fitting.solve import release_report
from privinf.inference.estimate import (
    Estimate,
    VarianceTerms,
    is_positive_definite,
    two_sided_pvalue,
    upper_quantile,
)
from privinf.inference.linear_scores import partialled
from privinf.inference.solution import semidefinite
from privinf.moments.equation import MomentMap, complete_rows, completeness, moments_noise_model
from privinf.moments.records import MomentSystem, NoisyRecordMoments
from privinf.notebook import html_frame
from privinf.releases import Release
from privinf.results import Results
from privinf.results.context import MEANS, Context
from privinf.results.export import PortableTable
from privinf.results.notes import CLIPPED_PAIRS, IMPUTED_SAMPLE, Note, complete_text, imputes, sentence
from privinf.schema.columns import all_columns
from privinf.typing import Flags, Floats, Integers
from privinf.validation import check_fraction

# Sds of the noise in the smallest direction of the columns, below which an interval of a correlation is the
# whole of [-1, 1]: see benchmarks/results/one_release.md.
STRONG = 6.0
WEAK_PAIRS = (
    "weak = True: the noise may be as large as the spread of a column, so the standard error gives no "
    "interval. The interval is then [-1, 1], or the half of it with the sign of the estimate if the p-value "
    "is below 0.05. An estimate is nan if the noise makes it larger than 1 or smaller than -1."
)
CLIPPED_MEANS = "Target: means of values clipped to their public bounds."
MEANS_EQUATION = """\
cov = S / (n - 1) + s^2 L L'
sampling: S is the covariance matrix of the columns, without the noise, and n the number of records
noise of the means: s is the standard deviation of the noise in each released moment
L is the matrix that maps the released moments to the means"""
ASSUMES_NORMAL = "standard errors assume jointly normal columns"
USES_SPREAD = "standard errors are estimated from the spread of the records"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MeanMoments:
    """Mean second moments of k released columns, scaled units, and the distribution of their error.

    Attributes
    ----------
    S : (k, k) array
        Noisy mean of x x'.
    part : MomentMap
        The columns, the last one its response, as sums of entries of z.
    constant : int
    n : int
    scale : float
        Noise sd of an isometric entry of the mean of zz'.
    spread : (m, m) array or None
        Covariance of one record's entries, noise included; None for totals.
    """

    S: Floats
    part: MomentMap
    constant: int
    n: int
    scale: float
    spread: Floats | None

    @classmethod
    def from_release(cls, release: Release, system: MomentSystem, part: MomentMap) -> MeanMoments:
        """Return the moments of all columns of a release; `system` is of its last column on the others.

        Raises NotAvailableError without a constant, and where rows are weighted or not independent.
        """
        design = release.design
        if design.constant is None:
            raise NotAvailableError(
                "means and correlations are not available, because the released model has no constant: "
                "make a new release with a constant"
            )
        if design.schema is not None and design.schema.unit is not None:
            raise NotAvailableError(
                "standard errors are not available, because rows of one unit are dependent and the release "
                "does not measure this dependence: make the release from a table with one row per unit"
            )
        S = np.block([[system.A, system.g[:, None]], [system.g, system.residual_variance(0.0 * system.g)]])
        dropping = moments_noise_model(release).get("missing") == "drop"
        if abs(S[design.constant, design.constant] - 1.0) > 1e-9 and not dropping:
            raise NotAvailableError(
                "standard errors are not available, because the rows are weighted and the release does not "
                "contain the variance of weighted rows: make a release of rows without weights"
            )
        scale = moments_noise_model(release)["scale"]
        records = isinstance(system, NoisyRecordMoments)
        sd = scale / (math.sqrt(system.n) if records else system.n)
        spread = system.covariance if isinstance(system, NoisyRecordMoments) else None
        return cls(S=S, part=part, constant=design.constant, n=system.n, scale=sd, spread=spread)

    @property
    def rows(self) -> Floats:
        """The columns as sums of entries of z, shape (k, size)."""
        return np.vstack([self.part.columns, self.part.response])

    @property
    def noise_free(self) -> Flags:
        """Which columns are public."""
        return np.asarray(~self.rows[:, self.part.public :].any(axis=1))

    def variances(self, loading: Floats) -> tuple[Floats, Floats | None]:
        """Return (noise, total) covariances of ``loading @ m``, m the mean entries; total None for totals."""
        noisy = loading[:, : self.part.noisy]
        noise = self.scale**2 * noisy @ noisy.T
        return noise, None if self.spread is None else loading @ self.spread @ loading.T / self.n


# ---- means


def means(moments: MeanMoments, release: Release) -> Results:
    """Return the means of all columns but the constant, user units; see `Analyses.means`.

    Notes
    -----
    ``E(x - m) = 0``: the noise of n m has variance s^2/2, exactly; to it comes the columns' covariance over
    n - 1 in a total, semidefinite with its trace kept, or the spread of the records' own noisy values.
    """
    design = release.design.user
    is_mean = np.arange(len(moments.S)) != moments.constant
    m = moments.S[moments.constant, is_mean]
    loading = moments.part.products(moments.rows[[moments.constant]], moments.rows[is_mean])[0]
    if not moments.noise_free[moments.constant]:  # the number of complete rows carries noise: E r(x - m) = 0
        constant = moments.rows[[moments.constant]]
        loading = loading - np.outer(m, moments.part.products(constant, constant)[0, 0])
    noise, total = moments.variances(loading)
    if total is None:
        centered = moments.S[np.ix_(is_mean, is_mean)] - np.outer(m, m)
        total = semidefinite((centered + centered.T) / 2) / (moments.n - 1) + noise
    cov_type = "sample covariance" if moments.spread is None else "HC0"
    columns = all_columns(design)
    scale = np.append(design.scale, design.y_scale)[is_mean]
    center = np.append(design.center, design.y_center)[is_mean]
    names = [column.name for column, keep in zip(columns, is_mean, strict=True) if keep]
    estimate = Estimate(
        params=m,
        cov=total,
        names=tuple(names),
        nobs=moments.n,
        noise_cov=noise,
        cov_type=cov_type,
        df=moments.n - 1,
        terms=VarianceTerms.dividing(total, MEANS_EQUATION, {"noise of the means": noise}),
    )
    return Results(
        estimate.transformed(np.diag(scale), shift=center, names=names),
        Context(
            report=release_report(release, reread=True),
            release=release,
            sampling_cov=(total - noise) * np.outer(scale, scale),
            model=MEANS,
            method="noisy second moments",
            settings=completeness(release),
            notes=(Note(CLIPPED_MEANS, "header"),),
        ),
    )


# ---- correlations


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PairCorrelations(PortableTable):
    """Correlations of pairs of columns, with errors that hold the noise.

    Attributes
    ----------
    params, bse, pvalues : DataFrame
        Of all pairs of columns: the correlation; its standard error; the p-value of zero.
    table : DataFrame
        One row per pair: the correlation, its standard error and p-value, Fisher's z and its standard error,
        and whether the noise leaves too little for an interval.
    given : tuple of str, or None
        Columns to condition on; None: for each pair every other released column.
    nobs : int
    law : str
        Basis of the sampling part of the errors.
    privacy : PrivacyReport
        Cost of the release.
    imputed : bool
        Whether missing values were to be imputed (``missing="impute-public"``).
    complete : CompleteRows or None
        Estimated number of complete rows, where the others were dropped (``missing="drop"``).

    Notes
    -----
    r = S_12 / sqrt(S_11 S_22) of the residuals on the constant and the columns held fixed. Intervals are
    Fisher's, ``tanh(atanh r +- q se)``. From totals ``se^2 = 1/(n - g - 3) + V/(1 - r^2)^2``, g columns held
    fixed and V the noise's variance to first order; the first term is right for jointly normal columns, as
    in scipy's ``pearsonr``. From records it is their own spread. The test of zero uses S_12, in which the
    noise is linear. A pair is weak where the noise may be as large as the columns' spread. Its interval is
    [-1, 1], or the half of it with the sign of the estimate if the test rejects zero at this level.
    """

    params: pd.DataFrame
    bse: pd.DataFrame
    pvalues: pd.DataFrame
    table: pd.DataFrame
    given: tuple[str, ...] | None
    nobs: int
    law: str
    privacy: PrivacyReport
    imputed: bool = False
    complete: CompleteRows | None = None

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, one row per pair, columns 0 and 1.

        Warns
        -----
        WeakIdentificationWarning
            Some pairs are weak: their interval is [-1, 1], or the half of it with the sign of the estimate if
            the p-value is below `alpha`.
        """
        ends = self._ends(alpha)
        for category, text in self._weak:
            warn(text, category)
        return ends

    def _ends(self, alpha: float) -> pd.DataFrame:
        """Return the intervals, without a warning."""
        table = self.table
        half = upper_quantile(check_fraction(alpha, "alpha") / 2.0) * table["se_z"].to_numpy()
        z = table["z"].to_numpy()
        ends = np.tanh(np.column_stack([z - half, z + half]))
        weak = table["weak"].to_numpy()
        rejected = table["P>|z|"].to_numpy() < alpha
        sign = np.sign(z)
        ends[weak, 0] = np.where(rejected & (sign > 0.0), 0.0, -1.0)[weak]
        ends[weak, 1] = np.where(rejected & (sign < 0.0), 0.0, 1.0)[weak]
        return pd.DataFrame(ends, table.index)

    @property
    def title(self) -> str:
        """Title, with the columns held fixed."""
        if self.given == ():
            return "Correlations"
        return f"Correlations, given {'all others' if self.given is None else ', '.join(self.given)}"

    @property
    def cautions(self) -> tuple[tuple[type[Warning], str], ...]:
        """Cautions about intervals and imputed values: kind and text."""
        completed = (ChangedTargetWarning, IMPUTED_SAMPLE)
        return ((completed,) if self.imputed else ()) + self._weak

    @property
    def _weak(self) -> tuple[tuple[type[Warning], str], ...]:
        """Cautions about intervals."""
        weak = self.table["weak"]
        text = (
            f"because of the noise, {int(weak.sum())} of {len(weak)} pairs are weak: their intervals are "
            "[-1, 1], or [0, 1] or [-1, 0] where the test of zero rejects; make a new release with a larger "
            "privacy budget"
        )
        return ((WeakIdentificationWarning, text),) if weak.any() else ()

    def tidy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return one row per pair.

        Columns ``term`` ("x, y"), ``estimate``, ``std_error``, ``p_value``, ``conf_low``, ``conf_high`` of
        level ``1 - alpha``, and ``weak``: the noise leaves no interval.
        """
        ends = self._ends(alpha)
        table = self.table
        return pd.DataFrame(
            {
                "term": [", ".join(pair) for pair in table.index],
                "estimate": table["corr"].to_numpy(),
                "std_error": table["std err"].to_numpy(),
                "p_value": table["P>|z|"].to_numpy(),
                "conf_low": ends[0].to_numpy(),
                "conf_high": ends[1].to_numpy(),
                "weak": table["weak"].to_numpy(),
            }
        )

    def __str__(self) -> str:
        return "\n".join([self._head, self._shown_table.round(4).to_string(), *self._notes])

    def _repr_html_(self) -> str:
        return html_frame(self._shown_table, self._head, self._notes)

    @property
    def _head(self) -> str:
        estimated = "" if self.complete is None or self.complete.is_exact else " (est.)"
        return f"{self.title}: {self.nobs}{estimated} records, {self.law}"

    @property
    def _shown_table(self) -> pd.DataFrame:
        shown = self.table.drop(columns=["z", "se_z", "weak"])
        shown[["[0.025", "0.975]"]] = self._ends(0.05).to_numpy()
        return shown.assign(weak=self.table["weak"])

    @property
    def _notes(self) -> list[str]:
        notes = [CLIPPED_PAIRS, *([sentence(IMPUTED_SAMPLE)] if self.imputed else [])]
        if self.complete is not None:
            notes.append(complete_text(self.complete))
        if self.table["weak"].any():
            notes.append(WEAK_PAIRS)
        return [*notes, *([self.privacy.stamp] if self.privacy.stamp else [])]


def correlations(
    moments: MeanMoments, release: Release, columns: Sequence[str] | None, given: Sequence[str] | None
) -> PairCorrelations:
    """Return the correlations of pairs of `columns` with `given` held fixed (None: all other columns)."""
    places = {column.name: place for place, column in enumerate(all_columns(release.design))}
    del places[release.design.columns[moments.constant].name]
    fixed = [] if given is None else _places(given, places, "given")
    chosen = _places(
        [name for name in places if places[name] not in fixed] if columns is None else columns, places
    )
    names = [name for place in chosen for name, at in places.items() if at == place]
    if len(chosen) < 2 or set(chosen) & set(fixed):
        raise ArgumentError("columns= must name at least two columns, none of which is in given=")
    pairs = list(combinations(range(len(chosen)), 2))
    all_places = list(places.values())
    estimates = []
    for i, j in pairs:
        pair = [chosen[i], chosen[j]]
        rest = [place for place in all_places if place not in pair] if given is None else fixed
        estimates.append(_correlation(moments, np.array(pair), np.array(rest, dtype=np.int64)))
    index = pd.MultiIndex.from_tuples([(names[i], names[j]) for i, j in pairs])
    table = pd.DataFrame(estimates, index, ["corr", "std err", "P>|z|", "z", "se_z", "weak"])
    squares: list[pd.DataFrame] = []
    for name, diagonal in (("corr", 1.0), ("std err", 0.0), ("P>|z|", 0.0)):
        square = np.full((len(names), len(names)), diagonal)
        for (i, j), value in zip(pairs, table[name], strict=True):
            square[i, j] = square[j, i] = value
        squares.append(pd.DataFrame(square, names, names))
    params, bse, pvalues = squares
    return PairCorrelations(
        params=params,
        bse=bse,
        pvalues=pvalues,
        table=table.astype({"weak": bool}),
        given=None if given is None else tuple(given),
        nobs=moments.n,
        law=ASSUMES_NORMAL if moments.spread is None else USES_SPREAD,
        privacy=release_report(release, reread=True),
        imputed=imputes(release.noise_model),
        complete=complete_rows(release),
    )


def _places(names: Sequence[str], places: dict[str, int], argument: str = "columns") -> list[int]:
    if isinstance(names, str) or any(name not in places for name in names) or len(set(names)) < len(names):
        raise ArgumentError(
            f"{argument}= must be a list of released columns without repeats; the released columns "
            f"are {', '.join(places)}"
        )
    return [places[name] for name in names]


def _correlation(moments: MeanMoments, pair: Integers, given: Integers) -> tuple[float, ...]:
    """Return (r, se, p-value, z, se of z, weak) of two columns; nan where there is no correlation."""
    fixed = np.append(moments.constant, given)
    gram = moments.S[np.ix_(fixed, fixed)]
    nothing = (math.nan,) * 5 + (1.0,)
    if not is_positive_definite(gram):
        return nothing
    lift = np.zeros((2, len(moments.S)))
    lift[[0, 1], pair] = 1.0
    lift[:, fixed] = -np.linalg.solve(gram, moments.S[np.ix_(fixed, pair)]).T
    R = lift @ moments.S @ lift.T
    if min(R[0, 0], R[1, 1]) <= 0.0:
        return nothing
    root = math.sqrt(R[0, 0] * R[1, 1])
    r = R[0, 1] / root
    rows = lift @ moments.rows
    entries = moments.part.products(rows, rows)
    slope = (entries[0, 1] - r * root * (entries[0, 0] / R[0, 0] + entries[1, 1] / R[1, 1]) / 2) / root
    noise, total = moments.variances(np.stack([slope, entries[0, 1] / root]))
    df = moments.n - len(given) - 3
    null = noise[1, 1] + 1.0 / max(df, 1) if total is None else total[1, 1]
    pvalue = float(two_sided_pvalue(r / math.sqrt(null)))
    if abs(r) >= 1.0 or df < 1:
        shown = r if abs(r) < 1.0 or not noise.any() else math.nan
        return shown, math.nan, pvalue, math.copysign(math.inf, r), math.nan, 1.0
    sampling = (1.0 - r**2) ** 2 / df
    se = math.sqrt(noise[0, 0] + sampling if total is None else total[0, 0])
    weak = _strength(moments, np.concatenate([pair, given])) < STRONG
    return r, se, pvalue, math.atanh(r), se / (1.0 - r**2), float(weak)


def _strength(moments: MeanMoments, columns: Integers) -> float:
    """Return the smallest eigenvalue of the centered moments of the noisy columns, in sds of their noise."""
    chosen = np.append(columns, moments.constant)
    noisy = ~moments.noise_free[chosen]
    if moments.scale == 0.0 or not noisy.any():
        return math.inf
    reduced = partialled(moments.S[np.ix_(chosen, chosen)], noisy)
    return float(np.linalg.eigvalsh(reduced)[0]) / moments.scale
