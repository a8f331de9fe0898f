"""Results: the typed, immutable facade over one estimate."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.bootstrap import parametric_bootstrap
from privinf.inference.estimate import Estimate
from privinf.results import draws as draw_containers
from privinf.results import resampling, scoring, storage
from privinf.results import simultaneous as joint
from privinf.results.constraints import ConstraintLike, linear_constraints
from privinf.results.context import Context
from privinf.results.provenance import DescribedResults
from privinf.results.rendering import PrivateSummary
from privinf.results.summary import summarize
from privinf.results.unavailable import NO_LIKELIHOOD, ONE_RECORD, ROWS_STAY, unavailable
from privinf.typing import ArrayLike, RngLike
from privinf.validation import check_choice, check_fraction, shown

if TYPE_CHECKING:
    import xarray as xr

    from privinf.inference.score_sets import ScoreSet
    from privinf.inference.score_test import ScoreTestResult

IntervalMethod = Literal["wald", "score"]


@doors
class Results(DescribedResults):
    """Coefficients, tests and intervals of a private fit.

    Immutable and picklable; made by a model's ``fit``.

    Parameters
    ----------
    estimate : Estimate
        Of p coefficients, in the user's units.
    report : PrivacyReport
        What the fit cost.
    **context
        Fields of `privinf.results.context.Context`: design, release, system, sampling_cov, identification,
        target, model, method, options, settings, rsquared, scale, notes, point.

    Notes
    -----
    **Privacy.** Reads no rows and costs nothing: every member post-processes what the fit released.

    Tests are normal and chi-square. Where the noise leaves no covariance, members that need one raise
    NotAvailableError with the reason, and `score_test`, ``conf_int(method="score")`` and `summary` work.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> y = X @ [0.5, 0.0] + 0.3 * rng.standard_normal(5000)
    >>> r = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2)).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> bool(r.pvalues["x1"] < 0.001), bool(r.bse_sampling["x1"] < r.bse["x1"])
    (True, True)
    >>> r.t_test("x1 = x2").c_names, r.wald_test("x1 = x2 = 0").df_denom
    (['x1 - x2'], 2.0)
    >>> r.simultaneous(rng=0).conf_int().shape
    (2, 2)
    """

    resid = unavailable("resid", ROWS_STAY)
    fittedvalues = unavailable("fittedvalues", ROWS_STAY)
    llf = unavailable("llf", NO_LIKELIHOOD)
    aic = unavailable("aic", NO_LIKELIHOOD)
    bic = unavailable("bic", NO_LIKELIHOOD)
    get_influence = unavailable("get_influence", ONE_RECORD)

    def __init__(self, estimate: Estimate, *, report: PrivacyReport, **context: Any) -> None:
        surroundings = Context(report=report, **context).fit_to(estimate)
        self.__dict__.update(_estimate=estimate, _context=surroundings)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be set")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._estimate, self._context)

    def conf_int(self, alpha: float = 0.05, method: IntervalMethod = "wald") -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1.

        Parameters
        ----------
        alpha : float
        method : {"wald", "score"}
            "score" inverts the score test, which holds its level however strong the noise is: intervals are
            conservative, the convex hulls of `score_set`, and unbounded where the data say so little.

        Warns
        -----
        WeakIdentificationWarning
            Normal intervals were asked for and `identification` says that they should not be trusted.
        """
        if check_choice(method, IntervalMethod, "method") == "wald":
            self._warn_if_weak("conf_int()")
            return super().conf_int(alpha)
        hulls = [found.hull for found in self._score_sets(alpha)]
        return pd.DataFrame(np.array(hulls, dtype=np.float64), list(self.names))

    def score_test(self, beta0: ArrayLike | None = None) -> ScoreTestResult:
        """Test all slopes at once without assuming that the noise is weak (Anderson-Rubin form).

        Parameters
        ----------
        beta0 : array_like, shape (number of private slopes,), optional
            Private slopes in the user's units, public columns concentrated out. Default: the global null
            that every slope but the constant is zero.

        Returns
        -------
        ScoreTestResult : statistic, pvalue, df

        Notes
        -----
        It needs the covariance of the scores. With ``cov_type="nonrobust"`` (`MomentOLS` on totals) that
        assumes equal error variance: where the variance goes with the columns, a test at 5% rejected a true
        hypothesis in .19 to .38 of samples (benchmarks/results/hc0_real.md). ``cov_type="HC0"`` does not.
        """
        return scoring.score_test(self._context, beta0)

    def score_set(self, name: str, alpha: float = 0.05) -> ScoreSet:
        """Return the values of one coefficient that the score test does not reject: pieces and hull."""
        return self._score_sets(alpha)[self._position(name)]

    def simultaneous(
        self,
        alpha: float = 0.05,
        which: ConstraintLike | None = None,
        method: joint.Method = "gaussian",
        *,
        draws: int | None = None,
        rng: RngLike = None,
    ) -> joint.SimultaneousResults:
        """Return joint intervals and adjusted p-values.

        Parameters
        ----------
        alpha : float
        which : str, list, mapping, array or (R, q), optional
            Coefficients or contrasts, as in `t_test`; they may be linearly dependent. Default: all
            coefficients.
        method : {"gaussian", "multiplier"}
            Null distribution of the largest |t|: from the covariance, or from released records.
        draws : int, optional
            Default: 100,000 normal draws (fewer for more than 300 quantities), 1,999 of multipliers.
        rng : None, int or Generator
        """
        if method == "multiplier":
            self._require_population("method='multiplier'")
        chosen = linear_constraints(np.eye(len(self.names)) if which is None else which, self.names)
        return joint.simultaneous(self._estimate, chosen, alpha=alpha, method=method, draws=draws, rng=rng)

    def bootstrap(
        self, draws: int = 999, method: resampling.Method = "multiplier", *, rng: RngLike = None
    ) -> resampling.BootstrapResults:
        """Return the bootstrap distribution of the coefficients.

        Parameters
        ----------
        draws : int
        method : {"multiplier", "pairs", "parametric"}
            Random signs on the records' influences; records drawn again and solved again; or draws from the
            normal distribution with the estimate's covariance, which needs no records.
        rng : None, int or Generator
        """
        if method != "parametric":
            self._require_population(f"method={shown(method)}")
        context = self._context
        return resampling.bootstrap(
            self._estimate, context.system, context.design, draws=draws, method=method, rng=rng
        )

    def draws(self, n: int = 1000, *, rng: RngLike = None) -> xr.Dataset:
        """Return draws from the normal sampling distribution, dims chain, draw and coefficient.

        Needs the extra ``privinf[arviz]``.
        """
        found = parametric_bootstrap(self._estimate.params, self._estimate.covariance, draws=n, rng=rng)
        return draw_containers.draws_dataset(
            found.draws,
            self.names,
            distribution="normal sampling distribution",
            privacy=_privacy_line(self.privacy),
        )

    def to_arviz(self, n: int = 1000, *, rng: RngLike = None, group: str = "posterior") -> Any:
        """Return `draws` as ArviZ's container (InferenceData, or DataTree from ArviZ 1 on)."""
        return draw_containers.to_arviz(self.draws(n, rng=rng), group)

    def summary(self, alpha: float = 0.05, title: str | None = None) -> PrivateSummary:
        """Return the summary; ``as_text``, ``as_html``, ``as_latex`` and ``as_csv`` render it."""
        return summarize(self, alpha=alpha, title=title)

    def plot(self, **options: Any) -> Any:
        """Plot coefficients with total and noise-free intervals; see `privinf.plotting.coefficients`."""
        from privinf.plotting import coefficients

        return coefficients(self, **options)

    def save(self, path: str | PathLike[str], *, records: bool = True, key: bytes | None = None) -> None:
        """Write the result to one file, without pickle.

        Parameters
        ----------
        path : path
        records : bool
            False leaves out the release and the scores: a small file, without bootstrap and score test.
        key : bytes, optional
            Secret for an HMAC; without it the checksum shows accidents only.
        """
        storage.save_results(self, path, records=records, key=key)

    @classmethod
    def load(cls, path: str | PathLike[str], *, key: bytes | None = None) -> Self:
        """Read a result that `save` wrote (StorageError if the file is damaged or foreign)."""
        loaded = storage.load_results(path, default=Results, key=key)
        if not isinstance(loaded, cls):
            raise ArgumentError(f"{path} holds {type(loaded).__name__}, not {cls.__name__}")
        return loaded

    @property
    def default_model_infos(self) -> dict[str, Callable[[Results], str]]:
        """Rows below the coefficients in statsmodels' ``summary_col``."""
        delta = self.privacy.default_delta
        return {
            "N": lambda result: f"{result.nobs:d}",
            f"epsilon (delta={delta:g})": lambda result: f"{result.privacy.epsilon(delta):.4g}",
        }

    def __repr__(self) -> str:
        size = f"{len(self.names)} coefficients, {self.nobs} records"
        return f"<{type(self).__name__}: {size}, {_privacy_line(self.privacy)}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def score_sets_are_quick(self, alpha: float) -> bool:
        """Return whether score intervals of this level are at hand or cost next to nothing."""
        return True

    def _check_settings(self) -> None:
        """Read all that this class takes from its settings: those of a file could be anything."""

    def _score_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        known = self.__dict__.setdefault("_known_score_sets", {})
        if alpha not in known:
            known[alpha] = scoring.all_score_sets(self._context, check_fraction(alpha, "alpha"))
        return cast("tuple[ScoreSet, ...]", known[alpha])

    def _require_population(self, what: str) -> None:
        if self.target == "sample":
            raise NotAvailableError(
                f"{what} resamples records, which is sampling error; the target is this finite population, "
                "whose only error is the noise"
            )


def _privacy_line(report: PrivacyReport) -> str:
    stamp = f", {report.stamp}" if report.stamp else ""
    return f"epsilon {report.epsilon():.4g} at delta {report.default_delta:g} ({report.relation}){stamp}"


def _restored(kind: type[Results], estimate: Estimate, context: Context) -> Results:
    result = kind.__new__(kind)
    result.__dict__.update(_estimate=estimate, _context=context)
    return result
