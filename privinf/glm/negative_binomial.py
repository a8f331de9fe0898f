"""Negative binomial regression of counts."""

from __future__ import annotations

from typing import Self

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import NotAvailableError
from privinf.fitting.model import SITES_ELSEWHERE, SITES_NOW, STATSMODELS
from privinf.glm.model import SPENDING_REFUSALS, GLMOptions
from privinf.glm.named import OneFamily
from privinf.glm.plan import FitRequest
from privinf.glm.results import NegativeBinomialResults
from privinf.progress import progress_bar
from privinf.schema import Schema
from privinf.typing import (
    AnyPath,
    Bounds,
    Calibration,
    ColumnLike,
    ColumnsLike,
    CovWord,
    Missing,
    Pair,
    RngLike,
    SitePairs,
    SpendingOptions,
    Table,
    Trust,
)

# Arguments of `Poisson`, and why `NegativeBinomial` does not have them.
OF_OTHER_COUNTS = {
    "residual_clip": "cannot be used with NegativeBinomial, whose clipping thresholds follow from noisy "
    "counts: use Poisson, whose robust standard errors are valid for overdispersed counts too",
    "weights": "cannot be used with NegativeBinomial, whose dispersion is that of single counts: use Poisson",
    "loglike_method": "is not supported: the variance is mu + alpha mu^2 (nb2 in statsmodels)",
}
# The same of `Poisson.fit`.
ONE_STEP_ALONE = dict.fromkeys(
    ("optimizer", "public_seed", "relation", "unit", "client_clip", "targets", "nuisance", "intervals"),
    "cannot be used with NegativeBinomial, which has the default fit only: use Poisson",
)


@error_boundaries
class NegativeBinomial(OneFamily):
    r"""Negative binomial regression (NB2) on one table, or on a federation, with a private dispersion.

    The mean of a count is mu = exp(x'b), its variance is mu + alpha mu^2, and alpha is the dispersion.

    Parameters
    ----------
    y : array_like, shape (n,)
        Counts; values outside `y_bounds` are clipped.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula. Columns that
        `offset` and `exposure` name must be columns of X, and get no coefficients.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column except the constant, in the order of the columns or by name; values
        outside the bounds are clipped.
    y_bounds : (low, high)
        Public bounds of the response; values outside the bounds are clipped.
    offset : str, optional
        Name of a column with declared bounds that is added to the linear predictor. The column gets no
        coefficient.
    exposure : str, optional
        Name of a column with positive bounds, such as the time at risk. Its logarithm is added to the linear
        predictor, and the column gets no coefficient.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        every row that lacks a value of the model. A dropped row adds zero to every sum, so that the number of
        dropped rows stays private.
    trust : {"central", "server"}, optional
        Who is trusted with the rows. With "central" (default) one curator holds the rows. With "server" the
        rows are sent to a server. Secure sums need several sites; pass the rows of each site to
        `from_arrays`.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record, with its features and its response (replace-one).
    With ``trust="central"`` one curator holds the rows, and everything that leaves the curator has noise.
    With ``trust="server"``, sites send sums without noise to a server that they trust. With
    ``trust="secure-sum"`` the sites add the noise themselves and mask their sums. The privacy report counts
    all releases of a fit, including the release of the dispersion.

    The coefficients solve the score equation of the model at a working dispersion ``a``, which is estimated
    from a first release:

    .. math:: \sum_i x_i (y_i - \mu_i) / (1 + a \mu_i) = 0.

    If the model of the mean is correct, the expectation of this score is zero for every value of a. An error
    in the working dispersion therefore only makes the estimates less precise. Robust standard errors (the
    default) are valid for any variance of the counts. The reported alpha is the root of the derivative of the
    log-likelihood with respect to alpha. In this derivative, counts above a public number are set to that
    number. If counts are negative binomial, this clipping causes no bias. Alpha is estimated at the estimated
    coefficients. Without noise the fit is the maximum likelihood fit, as in statsmodels.

    References
    ----------
    Cameron and Trivedi, "Regression Analysis of Count Data", 2nd edition, chapter 3, on the NB2 model.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = pi.add_constant(rng.uniform(-1, 1, (20_000, 2)))
    >>> y = rng.poisson(np.exp(X @ [0.5, 0.5, -0.3]) * rng.gamma(1.0, 1.0, 20_000))
    >>> model = pi.NegativeBinomial(y, X, bounds=[(-1, 1)] * 2, y_bounds=(0, 40))
    >>> r = model.fit(epsilon=2.0, delta=1e-6, rng=1)
    >>> bool((abs(r.params - [0.5, 0.5, -0.3]) < 4 * r.bse).all())
    True
    >>> low, high = r.alpha_conf_int()
    >>> low < 1.0 < high
    True
    """

    family = "negative-binomial"

    @refuses(OF_OTHER_COUNTS)
    @refuses(SITES_ELSEWHERE)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        options = GLMOptions(
            family=self.family,
            bounds=bounds,
            y_bounds=y_bounds,
            offset=offset,
            exposure=exposure,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses(OF_OTHER_COUNTS)
    @refuses(SITES_ELSEWHERE)
    def from_formula(  # type: ignore[override]
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        offset: str | None = None,
        exposure: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema. The term ``offset(column)`` in a
            formula has the same effect as the argument `offset`.
        data : DataFrame, any other table, or Federation
            Table with the raw rows, or a federation of sites that hold the rows. The sites of a federation
            must have the same schema, and policies that allow the trust model.
        schema : Schema
            Public bounds or levels of every column that the formula names, the response included.
        offset : str, optional
            Name of a column with declared bounds that is added to the linear predictor. The column gets no
            coefficient.
        exposure : str, optional
            Name of a column with positive bounds, such as the time at risk. Its logarithm is added to the
            linear predictor, and the column gets no coefficient.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private. In a federation each site chooses its own handling, by the
            argument `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. For a table, the choice is "central" (default): one curator holds
            the rows. For a federation, "server" (default) means that the sites send sums without noise to a
            server that they trust. The choice "secure-sum" means that the sites add the noise themselves and
            mask their sums, so that only the noisy total is revealed.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        NegativeBinomial
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError
            Raised if the schema does not declare the bounds of a column that the formula needs.
        """
        options = GLMOptions(
            family=cls.family,
            offset=offset,
            exposure=exposure,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    @refuses({"parties": SITES_NOW})
    @refuses(OF_OTHER_COUNTS)
    def from_arrays(  # type: ignore[override]
        cls,
        sites: SitePairs,
        *,
        bounds: Bounds,
        y_bounds: Pair | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (y, X) per site; the column ``const`` is public.

        Parameters
        ----------
        sites : sequence or mapping of (y, X)
            Response and features of every site: a mapping from labels of sites to pairs, or a sequence, whose
            sites are numbered from 0. The sites are simulated in this process; for real sites pass a
            federation to `from_formula`.
        bounds : sequence of (low, high), or mapping
            Public bounds of every column except the constant, in the order of the columns or by name; values
            outside the bounds are clipped.
        y_bounds : (low, high)
            Public bounds of the response; values outside the bounds are clipped.
        offset : str, optional
            Name of a column with declared bounds that is added to the linear predictor. The column gets no
            coefficient.
        exposure : str, optional
            Name of a column with positive bounds, such as the time at risk. Its logarithm is added to the
            linear predictor, and the column gets no coefficient.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            every row that lacks a value of the model. A dropped row adds zero to every sum, so that the
            number of dropped rows stays private.
        trust : {"server", "secure-sum"}, optional
            With "server" (default) the sites send sums without noise to a server that they trust. With
            "secure-sum" the sites add the noise themselves and mask their sums, so that only the noisy total
            is revealed; this mode needs the optional dependencies ``privinf[federation]``.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        NegativeBinomial
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, a bound is missing or invalid, or an argument
            is invalid. The message names the site whose rows cause the error.
        """
        options = GLMOptions(
            family=cls.family,
            bounds=bounds,
            y_bounds=y_bounds,
            offset=offset,
            exposure=exposure,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_sites(sites, options)

    @refuses(SPENDING_REFUSALS)
    @refuses(STATSMODELS, NotAvailableError)
    @refuses(ONE_STEP_ALONE)
    def fit(  # type: ignore[override]
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        cov_type: CovWord = "HC0",
        margins: bool = False,
        max_colluding: int = 0,
        checkpoint: AnyPath | None = None,
        calibration: Calibration | None = None,
        progress: bool | None = None,
    ) -> NegativeBinomialResults:
        """Fit the model.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        cov_type : {"HC0", "HC1", "nonrobust", "cluster"}
            Covariance of the coefficients. The choice "HC0" (default) is valid for any variance of the
            counts. The choice "nonrobust" is valid if the variance is mu + alpha mu^2. "HC1" is not available
            for models of counts. The choice "cluster" gives the same result as "HC0", because the model
            accepts only one row per unit of the schema.
        margins : bool
            Whether to keep a tenth of the budget for average marginal effects (`get_margeff`).
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        checkpoint : path, optional
            Folder in which a fit over a federation stores every query and every release. Use a new folder for
            each fit. If the fit is interrupted, the same call with the same folder continues the fit and pays
            for no release twice. With ``trust="server"`` the folder contains the secret key of the noise, so
            protect the folder as you protect the rows.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        progress : bool, optional
            Whether to show a progress bar over the releases of the fit. By default the bar appears after two
            seconds, on a terminal only.

        Returns
        -------
        NegativeBinomialResults
            Coefficients, covariance, tests, predictions and the privacy report. The dispersion is the
            attribute `alpha`, and its interval is `alpha_conf_int`.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid; nothing was spent.
        NotAvailableError
            Raised if there are too few rows, or there is too little budget, for the number of coefficients;
            nothing was spent.
        BudgetExceededError
            Raised if the fit would exceed the limit of the ledger; nothing was spent.
        ConvergenceError, NotPositiveDefiniteError
            Raised if, in a fit without noise, there is no finite estimate or columns are collinear.
        """
        spending = SpendingOptions(
            epsilon=epsilon, delta=delta, mu=mu, rho=rho, rng=rng, calibration=calibration
        )
        request = FitRequest(
            max_colluding=max_colluding, checkpoint=checkpoint, cov_type=cov_type, margins=margins
        )
        with progress_bar(progress, type(self).__name__, unit="sum"):
            result = self._fit(request, spending)
        assert isinstance(result, NegativeBinomialResults)
        return result
