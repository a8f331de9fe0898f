"""Results: the typed, immutable facade over one estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pandas as pd

from privinf.error_boundary import door, doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.results import context as scoring
from privinf.results import resampling, storage
from privinf.results.availability import NEED_COVARIANCE, NEED_DESIGN, NEED_EQUATION, available
from privinf.results.comparison import TableEntry
from privinf.results.constraints import Constraints
from privinf.results.context import Context, index_of
from privinf.results.delegation import delegated
from privinf.results.export import GLANCE, Caution, Export, caution_kinds
from privinf.results.fit_statistics import FitStatistics
from privinf.results.fitted import FittedResult
from privinf.results.hypotheses import LinearTests
from privinf.results.notes import Note
from privinf.results.paper_table import paper_table
from privinf.results.prediction import Prediction, predicted, prediction_rows
from privinf.results.rendering import PrivateSummary, UnavailableAttributes
from privinf.results.score_inference import ScoreTests
from privinf.results.summary import SummaryOptions, summarize
from privinf.results.wald import ABSORBED, Inference, warn_if_weak
from privinf.typing import (
    ArrayLike,
    ColumnsLike,
    Floats,
    IntervalMethod,
    PaperCells,
    RngLike,
    SummaryNotes,
    Which,
)
from privinf.validation import check_choice

if TYPE_CHECKING:
    from privinf.inference.score_sets import ScoreSet
    from privinf.inference.score_test import ScoreTestResult
    from privinf.results.variance import VarianceFormula


@doors
class Results(FittedResult, UnavailableAttributes):
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

    Tests are normal and chi-square, or t and F where `use_t`. Where the noise leaves no covariance, members
    that need one raise NotAvailableError with the reason, and `score_test`, ``conf_int(method="score")`` and
    `summary` work.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> y = X @ [0.5, 0.0] + 0.3 * rng.standard_normal(5000)
    >>> r = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2)).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> bool(r.pvalues["x1"] < 0.001), bool(r.bse_sampling["x1"] < r.bse["x1"])
    (True, True)
    >>> r.t_test("x1 = x2").c_names, int(r.wald_test("x1 = x2 = 0").df_num)
    (['x1 - x2'], 2)
    >>> r.simultaneous(rng=0).conf_int().shape
    (2, 2)
    """

    # ---- components, small frozen objects, and what a model puts in its own way

    @cached_property
    def _inference(self) -> Inference:
        return Inference(self._estimate, self._context)

    @cached_property
    def _tests(self) -> LinearTests:
        return LinearTests(self._inference)

    @property
    def _fit_statistics(self) -> FitStatistics:
        return FitStatistics(self._inference, self._no_moments)

    @property
    def _score_tests(self) -> ScoreTests:
        return ScoreTests(
            inference=self._inference,
            slopes_test=self._slopes_test,
            restricted_test=self._restricted_test,
            all_sets=self._all_score_sets,
            known_sets=self.__dict__.setdefault("_known_score_sets", {}),
        )

    @property
    def _resampling(self) -> resampling.Resampling:
        return resampling.Resampling(
            inference=self._inference,
            report=self.privacy,
            sampled=self._sampled,
            null_draws=self._null_draws,
        )

    @property
    def _export(self) -> Export:
        return Export(self)

    def _interval(self, alpha: float) -> Floats:
        """Return the ends of the normal intervals, shape (p, 2)."""
        return self._inference.interval(alpha)

    def _sampled(self, n: int, rng: np.random.Generator) -> tuple[str, Floats]:
        """Return the name of the sampling distribution and n draws from it, shape (n, p)."""
        return resampling.normal_draws(self._estimate, n, rng)

    def _null_draws(self, R: Floats, draws: int | None, rng: RngLike) -> Floats | None:
        """Return the model's own draws of the t statistics of ``R b``; None: by the records' influences."""
        self._context.require_population("method='multiplier'")
        return None

    def _slopes_test(self, beta0: ArrayLike | None) -> ScoreTestResult:
        return scoring.score_test(self._context, beta0)

    def _restricted_test(self, restrictions: Constraints) -> ScoreTestResult:
        return scoring.restricted_score_test(self._context, restrictions.R, restrictions.q)

    def _all_score_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        return scoring.all_score_sets(self._context, alpha)

    def _no_predictions(self) -> str:
        """Return why this result predicts for no new row; empty where it does."""
        return ABSORBED if self._context.absorbed else ""

    def _rows(self, exog: Any, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        if reason := self._no_predictions():
            raise NotAvailableError(reason)
        return prediction_rows(exog, self.names, self._context.design, transform=transform)

    def _warn_if_weak(self, asked: str) -> None:
        warn_if_weak(self._estimate, self._context, asked)

    def _summarized(self, told: SummaryOptions) -> PrivateSummary:
        return summarize(self, told)

    # ---- normal inference

    @property
    def use_t(self) -> bool:
        """Whether tests and intervals use t quantiles instead of normal ones.

        Their degrees of freedom are `df_resid` where the noise is nothing, and grow without bound where it is
        most of a contrast's error (Satterthwaite).
        """
        return self._inference.use_t

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        return self._inference.names

    @property
    def nobs(self) -> int:
        """Number of records."""
        return self._inference.nobs

    @property
    def df_model(self) -> int:
        """Number of coefficients besides the constant, be it a column or the sum of dummies."""
        return self._inference.df_model

    @property
    def k_constant(self) -> int:
        """1 where the columns hold a constant, or add up to one (all levels of a factor), else 0."""
        return self._inference.k_constant

    @property
    def df_resid(self) -> int:
        """Degrees of freedom of the sampling error; else the number of records less that of coefficients."""
        return self._inference.df_resid

    @property
    def cov_type(self) -> str:
        """Kind of covariance."""
        return self._inference.cov_type

    @property
    def params(self) -> pd.Series[float]:
        """Coefficients in the user's units."""
        return self._inference.params

    @property
    def bse(self) -> pd.Series[float]:
        """Standard errors, sampling and privacy noise together."""
        return self._inference.bse

    @property
    def tvalues(self) -> pd.Series[float]:
        """Coefficients over their standard errors."""
        return self._inference.tvalues

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of zero coefficients."""
        return self._inference.pvalues

    @property
    def bse_sampling(self) -> pd.Series[float]:
        """Standard errors that the same data would have had without noise; nan where hidden."""
        return self._inference.bse_sampling

    @property
    def bse_privacy(self) -> pd.Series[float]:
        """Standard errors that the privacy noise alone causes."""
        return self._inference.bse_privacy

    @property
    def noise_cov(self) -> pd.DataFrame:
        """Covariance of the part of the coefficients' error that the privacy mechanism causes."""
        return self._inference.noise_cov

    @property
    def variance_formula(self) -> VarianceFormula:
        """The named terms that add up to the coefficients' covariance, their sizes and their equation."""
        return self._inference.variance_formula

    @property
    def noise_share(self) -> pd.Series[float]:
        """Share of each coefficient's variance that the privacy noise causes."""
        return self._inference.noise_share

    cov_params = delegated("_inference", Inference.cov_params)
    delta_method = delegated("_inference", Inference.delta_method)
    t_test = delegated("_tests", LinearTests.t_test)
    wald_test = delegated("_tests", LinearTests.wald_test)
    f_test = delegated("_tests", LinearTests.f_test)
    compare_f_test = delegated("_tests", LinearTests.compare_f_test)
    t_test_pairwise = delegated("_tests", LinearTests.t_test_pairwise)
    wald_test_terms = delegated("_tests", LinearTests.wald_test_terms)

    def conf_int(
        self,
        alpha: float = 0.05,
        method: IntervalMethod = "wald",
        cols: Sequence[str | int] | None = None,
    ) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1.

        Parameters
        ----------
        alpha : float
        cols : sequence of names or positions, optional
            Coefficients wanted; default: all.
        method : {"wald", "score"}
            "score" inverts the score test, which holds its level however strong the noise is: intervals are
            conservative, the convex hulls of `score_set`, and unbounded where the data say so little.

        Warns
        -----
        WeakIdentificationWarning
            Normal intervals were asked for and `identification` says that they should not be trusted.
        """
        if check_choice(method, IntervalMethod, "method") == "wald":
            table = pd.DataFrame(self._interval(alpha), index_of(self.names))
        else:
            table = self._score_tests.intervals(alpha)
        return table if cols is None else table.iloc[[self._inference.position(column) for column in cols]]

    simultaneous = delegated("_resampling", resampling.Resampling.simultaneous)
    # ---- measures of fit

    @property
    def rsquared(self) -> float:
        """Share of the response's variance explained, from corrected moments."""
        return self._fit_statistics.rsquared

    @property
    def scale(self) -> float:
        """Residual variance without privacy noise, from corrected moments."""
        return self._fit_statistics.scale

    @property
    def rsquared_adj(self) -> float:
        """R-squared adjusted for the number of coefficients, as statsmodels has it."""
        return self._fit_statistics.rsquared_adj

    @property
    def fvalue(self) -> float:
        """F statistic of all coefficients but the constant, by the total covariance; see `f_pvalue`."""
        return self._fit_statistics.fvalue

    @property
    def f_pvalue(self) -> float:
        """p-value of `fvalue`. Where columns add up to a constant, the null is that the mean is constant."""
        return self._fit_statistics.f_pvalue

    @property
    def ssr(self) -> float:
        """Sum of squared residuals without privacy noise, from `scale`."""
        return self._fit_statistics.ssr

    @property
    def ess(self) -> float:
        """Sum of squares that the columns explain, around the mean where there is a constant."""
        return self._fit_statistics.ess

    @property
    def mse_resid(self) -> float:
        """`ssr` over the number of records less that of coefficients."""
        return self._fit_statistics.mse_resid

    @property
    def mse_model(self) -> float:
        """`ess` over `df_model`."""
        return self._fit_statistics.mse_model

    @property
    def mse_total(self) -> float:
        """Variance of the response (without a constant its mean square), without privacy noise."""
        return self._fit_statistics.mse_total

    @property
    def centered_tss(self) -> float:
        """Sum of squares of the response about its mean, from `ssr` and `rsquared`."""
        return self._fit_statistics.centered_tss

    # ---- inference by scores

    score_test = delegated("_score_tests", ScoreTests.score_test)
    score_set = delegated("_score_tests", ScoreTests.score_set)

    def score_sets_are_quick(self, alpha: float) -> bool:
        """Return whether score intervals of this level are at hand or cost next to nothing."""
        return True

    # ---- predictions

    def predict(
        self, exog: ColumnsLike | None = None, transform: bool = True, which: Which = "mean"
    ) -> pd.Series[float]:
        """Return predicted means of new rows, NaN where a column that the model reads is missing.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        which : {"mean", "linear"}
            The same here: the mean is linear.
        """
        check_choice(which, Which, "which")
        rows, index = self._rows(exog, transform)
        with np.errstate(over="ignore", invalid="ignore"):
            return pd.Series(rows @ self.params.to_numpy(), index, name=which)

    def get_prediction(self, exog: ColumnsLike | None = None, transform: bool = True) -> Prediction:
        """Return predicted means of new rows with standard errors and intervals; see `predict`.

        Where a residual variance was released there are intervals of new observations too.
        """
        return predicted(
            self._estimate, self._rows(exog, transform), "squared", scatter=self._fit_statistics.scatter()
        )

    # ---- draws

    bootstrap = delegated("_resampling", resampling.Resampling.bootstrap)
    draws = delegated("_resampling", resampling.Resampling.draws)
    to_arviz = delegated("_resampling", resampling.Resampling.to_arviz)

    # ---- tables, texts and files

    tidy = delegated("_export", Export.tidy)
    glance = delegated("_export", Export.glance)
    to_dict = delegated("_export", Export.to_dict)
    to_json = delegated("_export", Export.to_json)
    to_parquet = delegated("_export", Export.to_parquet)

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What normal intervals and the stated delta are warned of: kinds, as the warnings', and texts.

        Empty where nothing speaks against them.
        """
        return self._export.cautions

    def summary(
        self,
        yname: str | None = None,
        xname: Sequence[str] | None = None,
        title: str | None = None,
        alpha: float = 0.05,
        slim: bool = False,
        notes: SummaryNotes = "main",
    ) -> PrivateSummary:
        """Return the summary; ``as_text``, ``as_html``, ``as_latex`` and ``as_csv`` render it.

        Parameters
        ----------
        yname, title : str, optional
            What to call the response and the table.
        xname : sequence of str, optional
            What to call the coefficients, all of them.
        alpha : float
            Intervals are of level ``1 - alpha``.
        slim : bool
            Whether to leave out tests and explanations; warnings and what was spent stay.
        notes : {"main", "all"}
            "main" prints the warnings and what explains the table, "all" every note, the assumptions of the
            privacy claim among them. ``result.notes``, `report` and `to_dict` always have all of them.
        """
        return self._summarized(
            SummaryOptions(yname=yname, xname=xname, title=title, alpha=alpha, slim=slim, notes=notes)
        )

    def to_latex(
        self,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int = 3,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        """Return a table for a paper, which needs the LaTeX packages booktabs and threeparttable.

        Parameters
        ----------
        cells : {"se", "ci"}
            What stands next to the coefficients: standard errors, or intervals. A result without standard
            errors has intervals by the score test.
        stars : bool
            Whether to mark p-values below 0.05, 0.01 and 0.001.
        alpha : float
            Intervals have the level ``1 - alpha``.
        digits : int
            Digits after the point, at most 15.
        caption, label : str, optional
            The label is taken as it is.

        Returns
        -------
        str
            A note below the table states epsilon, delta, the unit of privacy and the number of records, and
            the kinds of the result's cautions.

        Raises
        ------
        ArgumentError
            An argument is invalid.

        Notes
        -----
        **Privacy.** Post-processing: no rows are read, and nothing is spent.
        """
        table = paper_table(self, cells=cells, stars=stars, alpha=alpha, digits=digits)
        return table.to_latex(caption, label)

    def to_html(
        self,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int = 3,
        caption: str | None = None,
    ) -> str:
        """Return the table of `to_latex` as one HTML table, with the note in its foot.

        Parameters
        ----------
        cells : {"se", "ci"}
            What stands next to the coefficients: standard errors, or intervals. A result without standard
            errors has intervals by the score test.
        stars : bool
            Whether to mark p-values below 0.05, 0.01 and 0.001.
        alpha : float
            Intervals have the level ``1 - alpha``.
        digits : int
            Digits after the point, at most 15.
        caption : str, optional

        Returns
        -------
        str

        Raises
        ------
        ArgumentError
            An argument is invalid.

        Notes
        -----
        **Privacy.** Post-processing: no rows are read, and nothing is spent.
        """
        return paper_table(self, cells=cells, stars=stars, alpha=alpha, digits=digits).to_html(caption)

    plot = delegated("_export", Export.plot)
    report = delegated("_export", Export.report)

    def save(
        self,
        path: str | PathLike[str],
        *,
        records: bool = True,
        key: bytes | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the result to one file, without pickle.

        Parameters
        ----------
        path : path
        records : bool
            False leaves out the release and the scores: a small file, without bootstrap and score test.
        key : bytes, optional
            Secret for an HMAC; without it the checksum shows accidents only.
        overwrite : bool
            Whether a file that is there is replaced.

        Raises
        ------
        ArgumentError
            There is such a file, and `overwrite` does not say that it may be replaced.
        NotAvailableError
            The fit used no noise and `records` is True: release and scores hold the rows.
        """
        storage.save_results(self, path, records=records, key=key, overwrite=overwrite)

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
            **({"noise": lambda result: result.privacy.stamp} if self.privacy.stamp else {}),
            **({"Cautions": lambda result: caution_kinds(result.cautions)} if self.cautions else {}),
        }

    def to_maketables(self) -> TableEntry:
        """Return the result as maketables asks for it: ``maketables.ETable([a.to_maketables()])``.

        Given as it is, a result is taken for one of statsmodels, without epsilon and cautions.
        """
        return TableEntry(self.tidy(), dict(zip(GLANCE, self.glance().iloc[0], strict=True)))

    # ---- the object

    def __dir__(self) -> list[str]:
        """List what this result has: attributes that would raise NotAvailableError are left out."""
        return available(self, super().__dir__(), self._refused_methods(), self._probes)

    # Properties that take long, and an attribute each that is not available where the property is not.
    _probes: ClassVar[Mapping[str, str]] = {}

    def _refused_methods(self) -> frozenset[str]:
        """Return the methods that raise NotAvailableError whatever their arguments."""
        refused: frozenset[str] = frozenset()
        if self._estimate.cov is None:
            refused |= NEED_COVARIANCE
        if self._context.system is None or self._context.design is None:
            refused |= NEED_EQUATION
        return refused | NEED_DESIGN if self._no_predictions() else refused

    def _with(self, estimate: Estimate, context: Context) -> Self:
        """Return the result with another estimate and surroundings."""
        return cast("Self", _restored(type(self), estimate, context))

    def _noted(self, notes: tuple[str | Note, ...]) -> Self:
        """Return the result with more footnotes."""
        return self._with(self._estimate, replace(self._context, notes=(*self._context.notes, *notes)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._estimate, self._context)

    def __repr__(self) -> str:
        size = f"{len(self.names)} coefficients, {self.nobs} records"
        return f"<{type(self).__name__}: {size}, {resampling.privacy_line(self.privacy)}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()


def _restored(kind: type[Results], estimate: Estimate, context: Context) -> Results:
    result = kind.__new__(kind)
    result.__dict__.update(_estimate=estimate, _context=context)
    return result


@door
def load_results(path: str | PathLike[str], *, key: bytes | None = None) -> Results:
    """Read a result that `Results.save` wrote.

    Raises
    ------
    StorageError
        The file is damaged, foreign, of a newer version, or written with another key.
    """
    return Results.load(path, key=key)
