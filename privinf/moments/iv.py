"""Two-stage least squares from one release of second moments, with Anderson-Rubin sets (iv)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError, NotPositiveDefiniteError, SchemaError
from privinf.fitting.solve import release_report
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import Concentrated, LargeSample, homoskedastic_variance
from privinf.inference.score_sets import Restriction, ScoreSet, projected_sets
from privinf.inference.score_surface import ScoreSurface
from privinf.inference.score_test import Identification, ScoreTestResult, identification
from privinf.inference.solution import quadratic, solve, totals_noise_terms
from privinf.moments.equation import MomentMap, NoisyTotals, completeness, positive_part
from privinf.releases import Release
from privinf.results import Results
from privinf.results.constraints import ConstraintLike, Constraints
from privinf.results.context import Context
from privinf.results.delegation import delegated
from privinf.results.notes import CLIPPED, Note
from privinf.results.score_inference import ScoreTests
from privinf.schema import Design
from privinf.schema.columns import sub_design
from privinf.typing import ArrayLike, Flags, Floats, SamplingKind
from privinf.validation import check_array, shown

_BRACKET = re.compile(r"\[([^\[\]~]+)~([^\[\]~]+)\]")
# First-stage F, noise in its covariance, below which a 5% test by one instrument may err more than 10% (Stock
# and Yogo 2005).
WEAK_F = 16.4
SYNTAX = (
    'write "y ~ x + [w ~ z1 + z2]", with one pair of brackets around the endogenous columns, ~ and '
    "their instruments"
)


@dataclass(frozen=True, slots=True)
class Stages:
    """The columns of a two-stage regression.

    Attributes
    ----------
    design : Design
        Of the structural equation.
    maps : ndarray, shape (p + l + 1, k + 1)
        Its p columns, the l instruments (the exogenous columns among them) and the response, each a sum of
        released columns.
    endogenous : (p,) bool array
    excluded : (l,) bool array
        Instruments that are not columns of the structural equation.
    """

    design: Design
    maps: Floats
    endogenous: Flags
    excluded: Flags

    @classmethod
    def from_design(cls, released: Design, formula: str) -> Stages:
        """Return what ``"y ~ x + [w ~ z]"`` reads of a release.

        Raises
        ------
        SchemaError
            The text is not such a formula.
        ArgumentError
            There are fewer instruments than endogenous columns.
        """
        if not isinstance(formula, str) or len(_BRACKET.findall(formula)) != 1:
            raise SchemaError(f"formula {shown(formula)} names no instruments: {SYNTAX}")
        # What the schema reads are the texts "y ~ x + (w)" and "y ~ x + (z)".
        second, first = (sub_design(released, _BRACKET.sub(rf"(\g<{at}>)", formula)) for at in (1, 2))
        X, Z = (
            tuple(frozenset(column.pieces) for column in stage.design.columns) for stage in (second, first)
        )
        endogenous = np.array([column not in Z for column in X])
        excluded = np.array([column not in X for column in Z])
        if not endogenous.any() or excluded.sum() < endogenous.sum():
            raise ArgumentError(
                f"the formula has {int(excluded.sum())} instruments for "
                f"{int(endogenous.sum())} endogenous columns: name at least one endogenous "
                "column, and at least as many instruments"
            )
        order = np.argsort([X.index(column) if column in X else len(X) for column in Z], kind="stable")
        maps = np.vstack([second.maps[:-1], first.maps[:-1][order], second.maps[-1:]])
        return cls(second.design, maps, endogenous, excluded[order])


class TwoStageEquation(LargeSample):
    r"""The two-stage equation ``Pi'(Z'y - Z'X b)/n = 0``, Pi = (Z'Z)^-1 Z'X, from noisy moments.

    Parameters
    ----------
    W : (size, size) array
        Noisy mean of zz'.
    part : MomentMap
        Columns X and instruments Z, in this order, and the response, as sums of entries of z.
    columns : int
        p, how many are X.
    n : int
    scale : float
        Noise sd of an isometric entry of the sum.

    Notes
    -----
    The moments ``h(b) = Z'(y - X b)/n`` take the noise linearly: ``n Cov h(b) = s2(b) Z'Z/n + n V(b)``, the
    second term exact. Pi multiplies them by a factor that is fixed to first order, since h is small: hence
    the sandwich of ``Pi'h``. s2 assumes errors of equal variance, as does the first term.

    **Privacy.** A function of the release alone.
    """

    cov_type = "nonrobust"
    variance_equation = """\
cov = A^-1 [ sampling + Pi'V_h Pi + Pi'V_A(b) Pi ] A^-T / n
b the coefficients, X the columns, Z the instruments, y the response, n the number of rows
Pi = (Z'Z)^-1 Z'X, A = Pi'Z'X/n
sampling       n times the sampling covariance of Pi'h(b), h(b) = Z'(y - X b)/n
score noise    V_h: n times the covariance of the noise in Z'y/n
Hessian noise  V_A(b): n times the covariance of the noise in (Z'X/n) b"""

    def __init__(self, W: Floats, part: MomentMap, *, columns: int, n: int, scale: float) -> None:
        self.n = n
        X = part.columns[:columns]
        Z = part.columns[columns:]
        self._second = MomentMap(part.public, X, part.response)
        self._instruments = Z
        self.first = NoisyTotals(W, n=n, part=MomentMap(part.public, Z, part.response), scale=scale)
        self.noise_free = self._second.noise_free
        self.cross: Floats = Z @ W @ X.T
        self.h: Floats = Z @ W @ part.response
        if not is_positive_definite(self.first.A):
            raise NotPositiveDefiniteError(
                "the noise is larger than the signal of the instruments: leave out some "
                "instruments, or release with less noise"
            )
        self._pi: Floats = np.asarray(np.linalg.solve(self.first.A, self.cross), dtype=np.float64)
        self.A: Floats = self._pi.T @ self.cross
        self.g: Floats = self._pi.T @ self.h
        self._W = W
        self._scale = scale
        self._quadratic = self._second.quadratic_form(W)
        residual_rows = np.vstack([-X, part.response])
        L = part.products(residual_rows, Z)[:, :, : part.noisy]
        noise = scale**2 / n * np.einsum("kam,lbm->klab", L, L, optimize=True)
        self._noise = np.asarray(noise, dtype=np.float64)
        near = positive_part(W)
        sampling = np.multiply.outer(self._second.quadratic_form(near), Z @ near @ Z.T)
        self._tensor: Floats = sampling + self._noise

    def first_stage(self, column: int) -> NoisyTotals:
        """Return the regression of one of the columns X on all instruments."""
        part = MomentMap(self._second.public, self._instruments, self._second.columns[column])
        return NoisyTotals(self._W, n=self.n, part=part, scale=self._scale)

    def scores(self, beta: Floats) -> None:
        """Return None: a total has no records."""

    def residual_variance(self, beta: Floats) -> float:
        """Return s2(b) = mean (y - x'b)^2 from the noisy moments; it may be negative."""
        w = np.append(beta, 1.0)
        return float(w @ self._quadratic @ w)

    def meat(self, beta: Floats) -> Floats:
        """Return ``n Cov(Pi'h(b))``: sampling and noise together."""
        return self._pi.T @ quadratic(self._tensor, np.append(beta, 1.0)) @ self._pi

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the terms of the part of the meat that the noise causes."""
        terms = totals_noise_terms(partial(quadratic, self._noise), beta)
        return {name: self._pi.T @ term @ self._pi for name, term in terms.items()}

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return the sampling part of the meat."""
        return homoskedastic_variance(self, beta) * self.A, "homoskedastic"

    def tensor(self) -> Floats:
        """Return C with ``meat(b) = sum_kl w_k w_l C_kl``."""
        tensor: Floats = np.einsum("klab,ac,bd->klcd", self._tensor, self._pi, self._pi, optimize=True)
        return tensor

    def gram_noise(self) -> tuple[Floats, float]:
        """Return the Gram matrix and noise of the first stage's instruments; `strength` reports weak ones."""
        return self.first.gram_noise()

    def fuller_gram(self, a: float | None = None) -> Floats:
        """Raise NotAvailableError: there is no noise covariance to subtract."""
        return self.first.fuller_gram(a)

    def surface(self, tested: Flags, rows: Flags, T: Floats) -> ScoreSurface:
        """Return the Anderson-Rubin statistic as a function of the coefficients `tested`, in units c = T b.

        `rows` are the instruments of its moments. Every other column is exogenous, and solves its own moment
        exactly.
        """
        p = len(tested)
        inverse = np.linalg.inv(T)
        lift = np.eye(p + 1)
        lift[:p, :p] = inverse
        cross = self.cross @ inverse
        projection = np.eye(len(rows))[rows]
        free = np.eye(p + 1)[:, np.append(tested, True)]
        if not tested.all():
            inner = cross[np.ix_(~rows, ~tested)]
            moments_of_tested = np.column_stack([cross[np.ix_(~rows, tested)], -self.h[~rows]])
            projection[:, ~rows] = -np.linalg.solve(inner.T, cross[np.ix_(rows, ~tested)].T).T
            free[np.append(~tested, False)] = -np.linalg.solve(inner, moments_of_tested)
        tensor = np.einsum("ki,lj,klab->ijab", lift, lift, self._tensor, optimize=True)
        return ScoreSurface.from_arrays(cross, self.h, tensor, self.n, Concentrated(projection, free))


def two_stage(release: Release, formula: str, stages: Stages, system: TwoStageEquation) -> IVResults:
    """Return two-stage least squares of a formula on a release; see `Analyses.iv`."""
    design = stages.design
    solution = solve(system)
    transform, shift = design.to_user
    sampling = solution.sampling_cov
    noise_model = release.noise_model
    return IVResults(
        solution.estimate(design.names).transformed(transform, shift=shift, names=design.names),
        Context(
            report=release_report(release, reread=True),
            design=design,
            release=release,
            system=system,
            sampling_cov=None if sampling is None else transform @ sampling @ transform.T,
            identification=strength(system, stages),
            model="TwoStageLeastSquares",
            method="two-stage least squares, noisy second moments",
            options={
                "Endogenous": ", ".join(np.array(design.names)[stages.endogenous]),
                "Excluded instruments": str(int(stages.excluded.sum())),
            },
            settings={"formula": formula} | completeness(release),
            notes=() if noise_model["noise_free"] else (Note(CLIPPED, "header"),),
        ),
    )


def strength(system: TwoStageEquation, stages: Stages) -> Identification:
    """Return the smallest first-stage F of an endogenous column; that of the instruments where they are weak.

    F is the Wald statistic of the excluded instruments over their number, the noise in its covariance.
    """
    overall = identification(system.first)
    rows = stages.excluded
    statistics = []
    for column in np.flatnonzero(stages.endogenous):
        solution = solve(system.first_stage(int(column)))
        if solution.cov is None:
            return Identification(
                statistic=0.0,
                threshold=WEAK_F,
                weak=True,
                smallest_eigenvalue=overall.smallest_eigenvalue,
                noise_edge=overall.noise_edge,
            )
        pi = solution.params[rows]
        cov = solution.cov[np.ix_(rows, rows)]
        statistics.append(float(pi @ np.linalg.solve(cov, pi)) / int(rows.sum()))
    if overall.weak:
        return overall
    return Identification(
        statistic=min(statistics),
        threshold=WEAK_F,
        weak=min(statistics) < WEAK_F,
        smallest_eigenvalue=overall.smallest_eigenvalue,
        noise_edge=overall.noise_edge,
    )


@dataclass(frozen=True, eq=False)
class AndersonRubinTests(ScoreTests):
    """Tests by the excluded instruments' moments, and the sets of values that they do not reject."""

    def score_test(self, beta0: ConstraintLike | None = None) -> ScoreTestResult:
        """Test coefficients by the excluded instruments' moments (Anderson-Rubin).

        Parameters
        ----------
        beta0 : str, list of str, mapping, (R, q), or array, optional
            Restrictions in any form that `wald_test` reads, over the rest of which the statistic is
            minimized: its degrees of freedom are the instruments less the coefficients that are left free.
            Or an array of the coefficients of all endogenous columns, user units, in the order of `params`;
            default zero.

        Returns
        -------
        object
            ``.statistic``, ``.pvalue`` and ``.df``.
        """
        return super().score_test(beta0)

    def restricted_test(self, restrictions: Constraints) -> ScoreTestResult:
        """Return the Anderson-Rubin test of ``R b = q`` in user units."""
        system, stages = self.parts()
        transform, shift = stages.design.to_user
        R = restrictions.R @ transform
        q = restrictions.q - restrictions.R @ shift
        tested = stages.endogenous | R.any(axis=0)
        exogenous = np.cumsum(~stages.endogenous) - 1  # the instruments begin with them, in their order
        rows = stages.excluded.copy()
        rows[exogenous[tested & ~stages.endogenous]] = True
        surface = system.surface(tested, rows, np.eye(len(tested)))
        statistic = surface.least(Restriction.from_arrays(R[:, tested], q).lift)
        df = int(rows.sum()) - (int(tested.sum()) - len(R))
        return ScoreTestResult(
            statistic=statistic,
            pvalue=system.distribution.pvalue(statistic, df),
            df=df,
            null=restrictions.q,
            law=system.distribution,
        )

    def slopes_test(self, beta0: ArrayLike | None) -> ScoreTestResult:
        """Return the Anderson-Rubin test of all endogenous columns' coefficients, in user units."""
        system, stages = self.parts()
        factors = np.diag(stages.design.to_user[0])
        count = int(stages.endogenous.sum())
        null = np.zeros(count) if beta0 is None else check_array(beta0, "beta0", ndim=1)
        if null.shape != (count,):
            raise ArgumentError(
                f"beta0 must have {count} entries, the coefficients of the endogenous columns, "
                f"got {len(null)}"
            )
        surface = system.surface(stages.endogenous, stages.excluded, np.eye(len(factors)))
        w = np.append(null / factors[stages.endogenous], 1.0)
        statistic = float(surface.evaluate(np.linalg.solve(surface.unwhiten, w)[None])[0][0])
        df = int(stages.excluded.sum())
        return ScoreTestResult(
            statistic=statistic,
            pvalue=system.distribution.pvalue(statistic, df),
            df=df,
            null=null,
            law=system.distribution,
        )

    def all_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        """Return the Anderson-Rubin sets of all coefficients in user units."""
        system, stages = self.parts()
        transform, shift = stages.design.to_user
        factors = np.diag(transform)
        exogenous = np.cumsum(~stages.endogenous) - 1  # the instruments begin with them, in their order
        sets = []
        for place, (factor, moved) in enumerate(zip(factors, shift, strict=True)):
            tested = stages.endogenous.copy()
            rows = stages.excluded.copy()
            tested[place] = True
            if not stages.endogenous[place]:
                rows[exogenous[place]] = True
            surface = system.surface(tested, rows, transform / factors[:, None])
            (score_set,) = projected_sets(surface, [int(tested[:place].sum())], alpha, system.distribution)
            if not score_set.pieces:
                raise NotAvailableError(
                    "the confidence set is empty: no coefficients agree with all the instruments, so some "
                    "instrument is probably not valid (if all instruments are valid, the probability of an "
                    "empty set is at most alpha)"
                )
            sets.append(score_set.mapped(float(factor), float(moved)))
        return tuple(sets)

    def parts(self) -> tuple[TwoStageEquation, Stages]:
        """Return the equation and its stages; NotAvailableError for a result stored without the release."""
        context = self.inference.context
        if context.release is None or not isinstance(context.system, TwoStageEquation):
            raise NotAvailableError(
                "Anderson-Rubin tests are not available, because this result was stored without the "
                "release that they need; compute them before you store the result"
            )
        return context.system, Stages.from_design(context.release.design, context.settings["formula"])


@error_boundaries
class IVResults(Results):
    """Results of two-stage least squares from second moments.

    Adds to `Results`: `identification` is the first-stage F with the noise in it (weak below 16.4), and
    ``conf_int(method="score")``, `score_set` and `score_test` are those of Anderson and Rubin, which hold
    however weak the instruments are. They assume errors of equal variance, as the standard errors do.

    References
    ----------
    Anderson, T. W. and Rubin, H. (1949), Annals of Mathematical Statistics 20, 46-63; Dufour, J.-M. and
    Taamouti, M. (2005), Econometrica 73, 1351-1365.
    """

    @cached_property
    def _score_tests(self) -> AndersonRubinTests:
        return AndersonRubinTests(self._inference)

    score_test = delegated("_score_tests", AndersonRubinTests.score_test)

    def _check_settings(self) -> None:
        if self.release is not None:
            self._score_tests.parts()
