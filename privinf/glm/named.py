"""Regressions by the names that statisticians know: OLS, Logit and Poisson, each a `GLM` of one family."""

from __future__ import annotations

from typing import Any, ClassVar, Self, Unpack

from privinf.accounting import Ledger
from privinf.error_boundary import doors, refuses
from privinf.errors import NotAvailableError
from privinf.fitting.model import SITES_NOW, STATSMODELS
from privinf.fitting.rows import is_federation, rows_of_formula, rows_of_pairs, rows_of_site, trust_of_sums
from privinf.glm.model import GLM, SPENDING_REFUSALS
from privinf.glm.plan import FitRequest, plan_fit
from privinf.glm.results import GLMResults
from privinf.glm.rows import glm_limits
from privinf.glm.sums import Roles, RoleWords
from privinf.schema import Schema
from privinf.typing import (
    AnyPath,
    Bounds,
    Calibration,
    ClipRule,
    ColumnLike,
    ColumnsLike,
    CovWord,
    Family,
    IntervalNeed,
    Missing,
    Pair,
    RngLike,
    ScoreTarget,
    SitePairs,
    SpendingOptions,
    Table,
    Trust,
)

NOTHING_DRAWN = "is not needed: nothing is drawn"  # why without_intervals has no rng


@doors
class OneFamily(GLM):
    """The doors of a regression whose family its name says; see `GLM`.

    Parameters
    ----------
    y, X, bounds, y_bounds, residual_clip, missing, trust, ledger
        As for `GLM`.
    offset, exposure, weights : str, optional
        `Logit` and `Poisson`: columns of X that have no coefficients, see `privinf.glm.sums.RoleWords`.
    """

    family: ClassVar[Family]

    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        residual_clip: float | ClipRule | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
        **columns: Unpack[RoleWords],
    ) -> None:
        chosen = trust_of_sums(trust, alone=True)
        model_rows = rows_of_site(y, X, glm_limits(self.family, bounds, y_bounds), missing=missing)
        self._bind(model_rows, chosen, self.family, None, residual_clip, ledger, Roles.of(columns))

    @classmethod
    def from_formula(  # type: ignore[override]
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        residual_clip: float | ClipRule | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
        **columns: Unpack[RoleWords],
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Of OLS, ``y ~ x | firm + year`` absorbs the effects of factors: they are fitted, and left out of
            the results, with the constant. Declared public, their levels cost no noise in `MomentOLS`.
        data : DataFrame, any other table, or Federation
        schema : Schema
            Bounds of columns and response.
        residual_clip, missing, ledger, offset, exposure, weights
            As for the class; the last three name columns of the table.
        trust : {"central", "server", "secure-sum"}
            Of a table "central"; over a federation "server" (default) or "secure-sum".

        Raises
        ------
        SchemaError, SensitivityError
            The schema declares no bounds for what the formula needs.
        """
        chosen = trust_of_sums(trust, alone=not is_federation(data))
        formula, roles = Roles.of(columns).read(formula, schema, cls.family)
        model_rows = rows_of_formula(roles.added(formula), data, schema, missing=missing)
        return cls.__new__(cls)._bind(model_rows, chosen, cls.family, None, residual_clip, ledger, roles)

    @classmethod
    @refuses({"parties": SITES_NOW})
    def from_arrays(  # type: ignore[override]
        cls,
        sites: SitePairs,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        residual_clip: float | ClipRule | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
        **columns: Unpack[RoleWords],
    ) -> Self:
        """Build the model from one pair (y, X) a site; arguments as for `GLM.from_arrays`."""
        chosen = trust_of_sums(trust, alone=False)
        model_rows = rows_of_pairs(sites, glm_limits(cls.family, bounds, y_bounds), missing=missing)
        roles = Roles.of(columns)
        return cls.__new__(cls)._bind(model_rows, chosen, cls.family, None, residual_clip, ledger, roles)

    @refuses({**SPENDING_REFUSALS, "rng": NOTHING_DRAWN})
    def without_intervals(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        calibration: Calibration | None = None,
    ) -> str:
        """Return why the default fit at this budget would have no intervals; nothing where it can have them.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one
            of `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs it wherever the noise
            is Gaussian. With `mu` or `rho` it is the delta at which epsilon is reported.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        calibration : {"exact", "classic"}, optional
            How `epsilon` and `delta` determine the noise. "exact" (default) is the exact account of Gaussian
            noise. "classic" is the textbook formula, to reproduce published results only.

        Returns
        -------
        str
            The reason, or an empty text.

        Notes
        -----
        **Privacy.** Nothing is charged: numbers of rows and coefficients say it, and no row is read.

        Examples
        --------
        >>> import numpy as np
        >>> import privinf as pi
        >>> model = pi.OLS(np.zeros(50), np.zeros((50, 3)), bounds=[(-1, 1)] * 3, y_bounds=(0, 9))
        >>> [model.without_intervals(epsilon=one, delta=1e-6)[:12] for one in (1, 20)]
        ['no intervals', '']
        """
        spending = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho, calibration=calibration)
        level: dict[str, Any] = {**spending.spending()}
        return plan_fit(level, FitRequest(), self._rows.reported()).weak


@doors
class OLS(OneFamily):
    r"""Linear regression of one table, or of a federation: narrow, robust to unequal variances, bias-aware.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like or DataFrame, shape (n, p)
        Used as it is: add a constant with `privinf.add_constant`, or use a formula.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column but the constant. Loose ones cost little.
    y_bounds : (low, high)
        Of the response; values outside are clipped.
    residual_clip : {"auto", "bounds"} or float
        "auto" (default): noisy counts choose where scores are clipped, the tail beyond is taken to go on as
        it was seen to, and intervals allow for a bias of that size. "bounds": nothing is clipped, nothing
        assumed, and noise is for the whole range. A number: residuals are clipped there, in units of y, which
        changes the target.
    missing, trust, ledger
        As for `GLM`.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one record, features and response together. Every release reads every row:
    second moments, counts, a Hessian, two layers of scores and a meat, each chosen from those before; their
    squared prices add up to mu^2 at most (`privinf.glm.least_squares`).

    Robust standard errors (HC0) by default. See `privinf.glm.least_squares` for the estimating equation and
    its variance.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = pi.add_constant(rng.uniform(-1, 1, (5000, 2)))
    >>> y = X @ [1.0, 0.5, -0.3] + 0.3 * rng.standard_normal(5000)
    >>> r = pi.OLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-5, 5)).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> bool((abs(r.params - [1.0, 0.5, -0.3]) < 4 * r.bse).all())
    True
    """

    family = "gaussian"

    @refuses(SPENDING_REFUSALS)
    @refuses(STATSMODELS, NotAvailableError)
    def fit(  # type: ignore[override]
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        cov_type: CovWord = "HC0",
        target: ScoreTarget = "mean",
        adapt_bounds: bool = False,
        max_colluding: int = 0,
        intervals: IntervalNeed = "required",
        checkpoint: AnyPath | None = None,
        calibration: Calibration | None = None,
    ) -> GLMResults:
        """Fit the model.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one
            of `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise. With it the fit is ordinary least
            squares.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs it wherever the noise
            is Gaussian. With `mu` or `rho` it is the delta at which epsilon is reported.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        cov_type : {"HC0", "HC1", "nonrobust", "cluster"}
            Covariance of the coefficients. "HC0" (default) is right whatever the variance of the errors
            depends on, and "HC1" multiplies its sampling part by n/(n - p). "nonrobust" assumes equal error
            variance. "cluster", by the unit of the schema, is "HC0": sums over rows have one row a unit
            (`MomentOLS` allows several).
        target : {"mean", "robust"}
            "mean": the least squares coefficients. "robust": the root of scores that are clipped at twice
            their usual length, which few large errors cannot move. It is the same where errors are symmetric.
        adapt_bounds : bool
            Whether rows count with weight min(1, 1/max_j x_j^2), x in units of narrower bounds that noisy
            counts suggest, for a twenty-fifth of the budget: less noise where bounds are far too wide. The
            target is least squares with these weights, the same where the mean is linear in x.
        max_colluding : int
            Number of sites that may collude with the server in secure sums; their noise does not count
            towards the guarantee.
        intervals : {"required", "optional"}
            "required" (default) refuses a fit that cannot have intervals, because its rows and budget are too
            few for its coefficients, before anything is charged. "optional" returns coefficients without
            standard errors. `without_intervals` returns the reason.
        checkpoint : path, optional
            Over a federation: folder of this call alone, in which every query and release is stored. If the
            call is stopped, the same call resumes it and pays for no release twice. With ``trust="server"``
            the folder holds the secret key of the noise: protect it as you protect the rows.
        calibration : {"exact", "classic"}, optional
            How `epsilon` and `delta` determine the noise. "exact" (default) is the exact account of Gaussian
            noise. "classic" is the textbook formula, to reproduce published results only.

        Returns
        -------
        GLMResults
            Coefficients, covariance, tests, prediction and the privacy report, of one table as of a
            federation.
        """
        spending = SpendingOptions(
            epsilon=epsilon, delta=delta, mu=mu, rho=rho, rng=rng, calibration=calibration
        )
        request = FitRequest(
            max_colluding=max_colluding,
            checkpoint=checkpoint,
            cov_type=cov_type,
            target=target,
            adapt_bounds=adapt_bounds,
            intervals=intervals,
        )
        return self._fit(request, spending)


@doors
class Logit(OneFamily):
    """Logistic regression of one table, or of a federation.

    Parameters
    ----------
    y : array_like, shape (n,)
        0 or 1. Other values are clipped to [0, 1] without a word: an error would tell something of a row.
        With a schema, its declared bounds are (0, 1), or it is a factor of two levels; all else is refused.
    X, bounds, missing, trust, ledger
        As for `OLS`.
    offset, weights : str, optional
        Columns of X without coefficients: added to the linear predictor as it is; how much a row counts.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** As for `GLM`.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = rng.uniform(size=20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> r = pi.Logit(y, X, bounds=[(-1, 1)] * 3).fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(r.params - [1.0, -0.5, 0.0]) < 4 * r.bse).all())
    True
    """

    family = "binomial"


@doors
class Poisson(OneFamily):
    """Poisson regression of one table, or of a federation.

    Parameters
    ----------
    y : array_like, shape (n,)
        Counts.
    X, bounds, y_bounds, missing, trust, ledger
        As for `OLS`.
    offset, exposure, weights : str, optional
        Columns of X without coefficients: added to the linear predictor as it is, or as its log; how much a
        row counts.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** As for `GLM`.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = pi.add_constant(rng.uniform(-1, 1, (20_000, 2)))
    >>> y = rng.poisson(np.exp(X @ [0.0, 0.5, -0.3]))
    >>> r = pi.Poisson(y, X, bounds=[(-1, 1)] * 2, y_bounds=(0, 12)).fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(r.params - [0.0, 0.5, -0.3]) < 4 * r.bse).all())
    True
    """

    family = "poisson"
