"""Analyses of one release of second moments: regressions, instruments, means, correlations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.solve import Fit, build_results
from privinf.moments import correlation, equation, iv
from privinf.moments.equation import MomentMap, layout_of, moments_noise_model
from privinf.moments.model import MomentOLS, moment_system
from privinf.moments.records import MomentSystem
from privinf.releases import Release
from privinf.results import Results
from privinf.results.effects import MOST_COLUMNS, absorbing, check_effects
from privinf.schema.calls import absorbed
from privinf.schema.columns import all_columns, each_formula, scaled_maps, sub_design
from privinf.typing import CovType, Floats, Json, Stabilization, Target
from privinf.validation import shown

ONE_OF_MANY = (
    "This release also serves other analyses: {} columns were released together at the privacy cost above."
)


OWN_ROBUST = (
    "For the regression for which the release was made, call "
    "release.regress(cov_type='HC0') without a formula"
)
NEW_ROBUST = (
    "'HC0' needs residual moments of this formula, which cost privacy and need the rows: use "
    "MomentOLS.from_formula(formula, rows, schema=schema).fit(cov_type='HC0', ...)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressOptions:
    """Options of `Analyses.regress`, which describes them."""

    cov_type: CovType | None = None
    stabilization: Stabilization = "none"
    ridge: float = 0.0
    fuller: float | None = None
    target: Target = "population"

    def fit(self) -> Fit:
        """Return how the equation is solved."""
        return Fit(stabilization=self.stabilization, ridge=self.ridge, fuller=self.fuller, target=self.target)


@error_boundaries
class Analyses:
    """The analyses of one release of second moments (`Moments`, `MomentOLS.release`): free, any number.

    Parameters
    ----------
    release : Release
        Release of kind "moments".

    Notes
    -----
    **Privacy.** Post-processing of one release, whose cost every result reports.

    A product or a power is a column where it was declared, ``Moments(schema, columns=["a", "b", "a:b"])``.
    A factor is the response nowhere: declare the column as a number from 0 to 1 for that.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame(rng.uniform(-1, 1, (5000, 3)), columns=list("abc"))
    >>> schema = pi.Schema({name: (-1.0, 1.0) for name in "abc"})
    >>> release = pi.Moments(schema, columns=list("abc")).release(rows, epsilon=1.0, delta=1e-6, rng=0)
    >>> list(release.regress("a + b ~ c")), release.means().names
    (['a', 'b'], ('a', 'b', 'c'))
    """

    def __init__(self, release: Release) -> None:
        self._release = release.require("moments", type(self).__name__)

    @classmethod
    def from_release(cls, release: Release) -> Self:
        """Return the analyses of a release."""
        return cls(release)

    def regress(
        self,
        formula: str | Sequence[str] | None = None,
        *,
        cov_type: CovType | None = None,
        stabilization: Stabilization = "none",
        ridge: float = 0.0,
        fuller: float | None = None,
        target: Target = "population",
    ) -> Results | dict[str, Results]:
        """Fit least squares of any numeric column of the release on sums of released columns.

        Parameters
        ----------
        formula : str or sequence of str, optional
            Regression to fit; default: the regression that the release was planned for. ``y ~ x | firm``
            absorbs effects of factors: see `OLS.from_formula`.
        cov_type : {"nonrobust", "HC0"}, optional
            Covariance of the coefficients, which is that of the release: of totals "nonrobust", which assumes
            equal error variance, of records "HC0". The residual moments of ``cov_type="HC0"`` belong to
            the formula of the release.
        stabilization : {"none", "fuller", "ridge"}
            Correction of noisy second moments that are nearly singular: Fuller's modification (with the
            constant `fuller`) or a ridge penalty (`ridge`). The summary names the correction. The choice
            "fuller" is not available for `MomentOLS`.
        ridge : float
            Ridge penalty, at least 0, in scaled units. With a penalty above 0 the coefficients are the ridge
            estimate. Intervals and tests are computed without the penalty unless ``target="penalized"``.
        fuller : float, optional
            Constant of Fuller's modification. The default is the number of coefficients plus 4.
        target : {"population", "sample", "penalized"}
            Coefficients for which intervals are computed: the coefficients of the population, the
            coefficients in these rows alone ("sample", with noise as the only error), or the ridge-penalized
            coefficients of the population.

        Returns
        -------
        Results, or dict of str to Results
            By response for a formula of several, ``"a + b ~ c"``; by formula for a list.

        Raises
        ------
        SchemaError, ArgumentError, NotAvailableError
            The text is not a formula, or needs columns or sums that were not released.
        """
        options = RegressOptions(
            cov_type=cov_type,
            stabilization=stabilization,
            ridge=ridge,
            fuller=fuller,
            target=target,
        )
        if formula is None:
            if self._release.design.formula is None and self._release.design.schema is not None:
                raise ArgumentError(
                    "this release serves many regressions: pass a formula, as in "
                    "release.regress('a ~ b'). The columns are "
                    + ", ".join(column.name for column in all_columns(self._release.design))
                )
            return MomentOLS.from_release(self._release).fit(
                cov_type=cov_type, stabilization=stabilization, ridge=ridge, fuller=fuller, target=target
            )
        return each_formula(formula, lambda text: self._regress(text, options))

    def _regress(self, formula: str, options: RegressOptions) -> Results:
        check_formula_covariance(self._release, options.cov_type)
        equation.check_stabilization(self._release, options.fit())
        schema = self._release.design.schema
        formula, effects = (formula, ()) if schema is None else absorbed(formula, schema)
        part = sub_design(self._release.design, formula)
        check_effects(part.design, effects, limit=MOST_COLUMNS)
        system = moment_system(self._release, part_of(self._release, part.maps))
        result = build_results(
            Results,
            system,
            release=self._release,
            ledger=None,
            reread=True,
            model=MomentOLS.__name__,
            method=equation.METHOD,
            fit=replace(options.fit(), design=part.design),
            options=equation.described(self._release),
            settings={"formula": formula}
            | equation.completeness(self._release)
            | equation.at_ends(self._release, system, part.design),
            notes=(ONE_OF_MANY.format(len(all_columns(self._release.design))),),
        )
        return absorbing(result._noted(equation.advice_of(result, system, self._release.design)), effects)

    def iv(self, formula: str) -> iv.IVResults:
        """Fit two-stage least squares.

        Parameters
        ----------
        formula : str
            ``"y ~ x + [w ~ z1 + z2]"``: w is endogenous, z1 and z2 are its instruments, x is in both
            stages, and so is the constant unless ``- 1`` removes it.

        Returns
        -------
        IVResults
            `Results`, with the strength of the first stage, and Anderson-Rubin sets by
            ``conf_int(method="score")``. The residual variance has divisor n, as in linearmodels' ``IV2SLS``
            (its default), where `MomentOLS` and statsmodels' ``IV2SLS`` have n - p.

        Raises
        ------
        SchemaError, NotAvailableError, ArgumentError
            The formula names a column that was not released, there are fewer instruments than endogenous
            columns, or the release is of records.
        """
        stages = iv.Stages.from_design(self._release.design, formula)
        return iv.two_stage(self._release, formula, stages, stage_system(self._release, stages))

    def means(self) -> Results:
        """Return the means of all released columns, factors by their levels but the first, as a result.

        Returns
        -------
        Results
            ``params``, ``bse``, ``conf_int()``, ``t_test("a = b")`` and the other attributes of `Results`.
            Standard errors and tests include the noise.

        Raises
        ------
        NotAvailableError
            The release has no constant, or rows that are weighted or belong to persons with several.
        """
        return correlation.means(self._moments(), self._release)

    def corr(self, columns: Sequence[str] | None = None) -> correlation.PairCorrelations:
        """Return the correlations of all pairs of columns.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of released columns; default all.

        Returns
        -------
        PairCorrelations

        Raises
        ------
        ArgumentError, NotAvailableError
            A name is not the name of a released column, or the release is not a release of second moments.
        """
        return correlation.correlations(self._moments(), self._release, columns, ())

    def partial_corr(
        self, columns: Sequence[str] | None = None, given: Sequence[str] | None = None
    ) -> correlation.PairCorrelations:
        """Return the partial correlations of all pairs of columns, other columns held fixed.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of released columns; default all but those in `given`.
        given : sequence of str, optional
            Columns that are held fixed; default: for each pair every other released column.

        Returns
        -------
        PairCorrelations

        Raises
        ------
        ArgumentError, NotAvailableError
            A column was not released, is named twice, or is both held fixed and correlated.
        """
        return correlation.correlations(self._moments(), self._release, columns, given)

    def _moments(self) -> correlation.MeanMoments:
        released = self._release.design
        maps = np.eye(len(all_columns(released)))
        if released.raw is not None:
            maps = scaled_maps(released, released.user)
        part = part_of(self._release, maps)
        return correlation.MeanMoments.from_release(self._release, moment_system(self._release, part), part)


def part_of(release: Release, maps: Floats) -> MomentMap:
    """Return columns and a response, last, that are sums of released columns, as sums of entries of z."""
    layout, order = layout_of(release)
    entries = np.empty_like(maps)
    entries[:, order] = maps[:, :-1]
    entries[:, -1] = maps[:, -1] / moments_noise_model(release)["response_weight"]
    return MomentMap(layout.public, entries[:-1], entries[-1])


def stored_system(release: Release, settings: Json) -> MomentSystem:
    """Return the estimating equation of stored results: of the release's own regression, or of a formula."""
    if "formula" not in settings:
        return moment_system(release)
    return moment_system(release, part_of(release, sub_design(release.design, settings["formula"]).maps))


def stored_iv(release: Release, settings: Json) -> iv.TwoStageEquation:
    """Return the two-stage equation of stored results."""
    return stage_system(release, iv.Stages.from_design(release.design, settings["formula"]))


def stage_system(release: Release, stages: iv.Stages) -> iv.TwoStageEquation:
    """Return the two-stage equation of a formula's stages, scaled units."""
    noise_model = moments_noise_model(release)
    if noise_model["trust"] == "local":
        raise NotAvailableError(
            'iv() needs a release of totals (trust="central", "server" or "secure-sum"), and this '
            "release contains noisy single records"
        )
    layout, _ = layout_of(release)
    n = equation.rows_of(release)
    W = layout.matrix(release.arrays["moments"], release.arrays["public_moments"]) / n
    part = part_of(release, stages.maps)
    columns = len(stages.endogenous)
    return iv.TwoStageEquation(W, part, columns=columns, n=n, scale=noise_model["scale"])


def check_formula_covariance(release: Release, cov_type: str | None) -> None:
    """Raise NotAvailableError, with the alternatives, unless a formula on a release has this covariance."""
    release_kind = equation.release_cov_type(release)
    totals = release_kind == "HC0" and release.noise_model["trust"] != "local"
    # Residual moments are of the release's own formula.
    available = "nonrobust" if totals else release_kind
    if cov_type in (None, available):
        return
    remedy = f"Leave cov_type= out, or pass cov_type={available!r}"
    if cov_type == "HC0":
        remedy = OWN_ROBUST if totals else NEW_ROBUST
    raise NotAvailableError(
        f"cov_type={shown(cov_type)} is not available: a regression by formula on this release "
        f"has only cov_type={available!r}. {remedy}"
    )
