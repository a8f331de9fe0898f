"""Results: one class over the estimate of a fit, with derived quantities and exports."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError
from privinf.inference.estimate import Estimate
from privinf.results import storage
from privinf.results.availability import NEED_COVARIANCE, NEED_DESIGN, NEED_EQUATION, available
from privinf.results.comparison import SCORE_ERRORS, TableEntry, flag_rows
from privinf.results.context import Context
from privinf.results.delegation import delegated
from privinf.results.export import GLANCE, Caution, Export, caution_kinds
from privinf.results.fitted import FittedResult
from privinf.results.notes import Note, counted_records
from privinf.results.paper_table import TEXT_ONLY, has_score_intervals, paper_table
from privinf.results.rendering import PrivateSummary, UnavailableAttributes
from privinf.results.resampling import privacy_line
from privinf.results.summary import SummaryOptions, flagged_names, flags_of, summarize
from privinf.storage.checksummed import save_text
from privinf.typing import AnyPath, PaperCells, RngLike, SummaryNotes
from privinf.validation import check_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of conf_int() and other methods, as callers of privinf.stats may expect.
JOINT_INTERVALS = (
    "result.simultaneous(0.05).conf_int() has joint intervals (np.exp of them are those of ratios), and "
    "result.simultaneous(0.05).pvalues has joint p-values"
)


@error_boundaries
class Results(FittedResult, UnavailableAttributes):
    """Results of a private fit: coefficients, covariance, tests and intervals.

    Results are made by the method ``fit`` of a model. Results objects are immutable and can be pickled.

    Parameters
    ----------
    estimate : `privinf.inference.estimate` object
        Estimate of the p coefficients, in user units.
    context : Context
        Privacy cost, design, release, estimating equation, options and notes of the fit.

    Notes
    -----
    **Privacy.** Costs nothing: every method uses only released numbers.

    Tests use the normal and chi-square distributions, or the t and F distributions if `use_t` is True. If the
    noise is too large to compute a covariance, methods that need a covariance raise NotAvailableError with
    the reason. In this case `score_test`, ``conf_int(method="score")`` and `summary` are still available.

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

    _foreign_arguments: ClassVar[Mapping[str, str]] = {"simultaneous": JOINT_INTERVALS}

    # ---- summaries and tables

    def summary(
        self,
        yname: str | None = None,
        xname: Sequence[str] | None = None,
        title: str | None = None,
        alpha: float = 0.05,
        slim: bool = False,
        notes: SummaryNotes = "main",
    ) -> PrivateSummary:
        """Return the summary of the fit, in the style of statsmodels.

        Parameters
        ----------
        yname, title : str, optional
            Name of the response and title of the table.
        xname : sequence of str, optional
            Names to print for all coefficients.
        alpha : float
            One minus the confidence level of the intervals.
        slim : bool
            Whether to leave out tests and explanations. Warnings and the privacy cost are always printed.
        notes : {"main", "all"}
            Notes below the table. With "main" the summary prints warnings and the explanations of the table.
            With "all" it prints every note and the assumptions of the privacy guarantee. The attribute
            ``notes`` and the methods `report` and `to_dict` always contain all notes.

        Returns
        -------
        Summary of statsmodels
            Summary, which prints as text. Its methods ``as_text``, ``as_html``, ``as_latex`` and ``as_csv``
            return other formats.
        """
        options = SummaryOptions(yname=yname, xname=xname, title=title, alpha=alpha, slim=slim, notes=notes)
        return summarize(self, options)

    @refuses(TEXT_ONLY)
    def to_latex(
        self,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        """Return a LaTeX table for a paper, which needs the packages booktabs and threeparttable.

        Parameters
        ----------
        cells : {"se", "ci"}
            Statistic next to the coefficients: standard errors ("se") or confidence intervals ("ci"). For a
            result without standard errors, or whose summary has intervals from score tests, both values give
            the intervals of the score tests.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01 by stars, if the result has p-values. The
            function ``summary_col(stars=True)`` of statsmodels uses the same levels.
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            its standard error, or half the length of its interval, needs more for two significant digits.
        caption, label : str, optional
            Caption and LaTeX label of the table.

        Returns
        -------
        str
            LaTeX code of the table. The note below the table states epsilon, delta, the unit of privacy, the
            number of records, the kinds of cautions of the result, and the weakly identified coefficients.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        table = paper_table(self, cells=cells, stars=stars, alpha=alpha, digits=digits)
        return table.to_latex(caption, label)

    @refuses(TEXT_ONLY)
    def to_html(
        self,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
    ) -> str:
        """Return the same table as `to_latex` in HTML, with a note below the table.

        Parameters
        ----------
        cells : {"se", "ci"}
            Statistic next to the coefficients: standard errors ("se") or confidence intervals ("ci"). For a
            result without standard errors, or whose summary has intervals from score tests, both values give
            the intervals of the score tests.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01 by stars, if the result has p-values. The
            function ``summary_col(stars=True)`` of statsmodels uses the same levels.
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            its standard error, or half the length of its interval, needs more for two significant digits.
        caption : str, optional
            Title above the table.

        Returns
        -------
        str
            HTML text of the table.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return paper_table(self, cells=cells, stars=stars, alpha=alpha, digits=digits).to_html(caption)

    def to_word(
        self,
        path: AnyPath,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the same table as `to_latex` to a Word file, with the note below the table.

        Parameters
        ----------
        path : path
            File to write. Its name must end with ``.docx``.
        cells : {"se", "ci"}
            Statistic next to the coefficients: standard errors ("se") or confidence intervals ("ci"). For a
            result without standard errors, or whose summary has intervals from score tests, both values give
            the intervals of the score tests.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01 by stars, if the result has p-values. The
            function ``summary_col(stars=True)`` of statsmodels uses the same levels.
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            its standard error, or half the length of its interval, needs more for two significant digits.
        caption : str, optional
            Title above the table.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid, or if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if the package maketables is not installed (``privinf[tables]``).

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        table = paper_table(self, cells=cells, stars=stars, alpha=alpha, digits=digits)
        table.to_word(path, caption, overwrite)

    @property
    def _export(self) -> Export:
        return Export(self)

    tidy = delegated("_export", Export.tidy)
    glance = delegated("_export", Export.glance)
    to_dict = delegated("_export", Export.to_dict)
    to_json = delegated("_export", Export.to_json)
    to_parquet = delegated("_export", Export.to_parquet)

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Warnings about the intervals and about delta, as pairs of category and text.

        The tuple is empty if there are no such warnings.
        """
        return self._export.cautions

    @property
    def default_model_infos(self) -> dict[str, Callable[[Results], str]]:
        """Rows that ``summary_col`` of statsmodels prints below the coefficients."""
        delta = self.privacy.default_delta
        return {
            "N": counted_records,
            f"epsilon (delta={delta:g})": lambda result: f"{result.privacy.epsilon(delta):.4g}",
            **({"noise": lambda result: result.privacy.stamp} if self.privacy.stamp else {}),
            **({"Cautions": lambda result: caution_kinds(result.cautions)} if self.cautions else {}),
            **({"Flagged": lambda result: flagged_names(result)} if flags_of(self).marks else {}),
        }

    def to_maketables(self) -> TableEntry:
        r"""Return the result for the package maketables, as in ``maketables.ETable([a.to_maketables()])``.

        Without this method maketables would print the result like a result of statsmodels, without epsilon
        and cautions.

        Returns
        -------
        object
            Object with the methods that maketables calls, which return the coefficients and the properties of
            the fit. An estimated number of observations is marked *(est.)*, and the row *S.E. type* states
            whether standard errors include the privacy noise. A dagger or a double dagger marks the
            coefficients that the summary flags, and the last rows name them. If the intervals of the fit are
            from score tests, the standard errors are missing, as in `to_latex`:
            ``coef_fmt="b:.3f* \n [ci95l:.3f, ci95u:.3f]"`` prints the intervals.
        """
        facts = dict(zip(GLANCE, self.glance().iloc[0], strict=True))
        complete = self._context.complete
        is_known = complete is None or complete.is_exact
        facts["records"] = self.nobs if is_known else f"{self.nobs:,} (est.)"
        has_noise = facts["epsilon"] != math.inf
        facts["errors"] = f"{self.cov_type}, with privacy noise" if has_noise else self.cov_type
        coefficients = self.tidy()
        if has_score_intervals(self):
            facts["errors"] = SCORE_ERRORS
            coefficients["std_error"] = math.nan
        marks = flags_of(self).marks
        return TableEntry(coefficients, facts | flag_rows(self, marks), marks)

    # ---- plots, pages and files

    def plot(
        self,
        *,
        simultaneous: bool = False,
        alpha: float = 0.05,
        which: list[str] | None = None,
        rng: RngLike = 0,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot the coefficients with their intervals, with and without the privacy noise.

        Parameters
        ----------
        simultaneous : bool
            Whether to draw simultaneous intervals behind the intervals of the single coefficients.
        alpha : float
            One minus the confidence level of the intervals.
        which : list of str, optional
            Names of the coefficients to plot. By default all coefficients except the constant are plotted.
        rng : None, int or Generator
            Seed or generator of the simulation that computes the simultaneous intervals.
        ax : matplotlib Axes, optional
            Axes to plot on. By default new axes are made.

        Returns
        -------
        matplotlib Axes
            The axes with the plot.

        Raises
        ------
        NotAvailableError
            Raised if matplotlib is not installed (``privinf[plots]``).
        ArgumentError
            Raised if a text in `which` is not the name of a coefficient.
        """
        from privinf.plotting import coefficients

        return coefficients(self, simultaneous=simultaneous, alpha=alpha, which=which, rng=rng, ax=ax)

    def report(self, path: AnyPath, *, alpha: float = 0.05, overwrite: bool = False) -> None:
        """Write an HTML report of the result: summary, plots, trade-off curve and ledger entries.

        The page contains no scripts and loads no other files.

        Parameters
        ----------
        path : path
            File to write.
        alpha : float
            One minus the confidence level of the intervals.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if matplotlib is not installed (``privinf[plots]``).
        """
        from privinf.results.page import page_of

        save_text(path, page_of(self, check_fraction(alpha, "alpha")), overwrite=overwrite)

    def save(
        self,
        path: str | PathLike[str],
        *,
        records: bool = True,
        key: bytes | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the result to one file, which contains no pickle.

        Parameters
        ----------
        path : path
            File to write.
        records : bool
            Whether the file also contains the release and the scores of records. Results of `OLS`, `Logit`
            and `Poisson` lose nothing without them. Other files are then smaller, but the loaded result has
            no score test, and no bootstrap that needs records ("pairs" and "multiplier"). In this case all
            coefficients of a loaded, weakly identified fit of `MomentOLS` or `ModulatedOLS` are flagged, and
            they have normal intervals or no intervals.
        key : bytes, optional
            Secret key for an HMAC, which detects all changes of the file. Without a key the file has a
            checksum, which detects accidental changes only.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if the fit used no noise and `records` is True. The release and the scores of such a fit
            contain raw rows.
        """
        storage.save_results(self, path, records=records, key=key, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str], *, key: bytes | None = None) -> Self:
        """Read a result that the method `save` wrote.

        Parameters
        ----------
        path : path
            File to read.
        key : bytes, optional
            Secret key with which the file was written.

        Returns
        -------
        Results
            The saved result.

        Raises
        ------
        StorageError
            Raised if the file is damaged, was not written by `save`, was written by a newer version, or was
            written with a different key.
        ArgumentError
            Raised if the file contains results of a different class.
        """
        loaded = storage.load_results(path, default=Results, key=key)
        if not isinstance(loaded, cls):
            raise ArgumentError(
                f"the file {path} contains an object of class {type(loaded).__name__}, not "
                f"{cls.__name__}: load it with the class {type(loaded).__name__}"
            )
        return loaded

    # ---- the object

    def __dir__(self) -> list[str]:
        """List the attributes of this result without those that would raise NotAvailableError."""
        return available(self, super().__dir__(), self._refused_methods(), self._probes)

    # Properties that take long, and an attribute each that is not available where the property is not.
    _probes: ClassVar[Mapping[str, str]] = {}

    def _refused_methods(self) -> frozenset[str]:
        """Return the methods that raise NotAvailableError whatever their arguments."""
        refused: frozenset[str] = frozenset()
        if self._estimate.cov is None:
            refused |= NEED_COVARIANCE
        if not self._score_tests.available:
            refused |= NEED_EQUATION
        return refused | NEED_DESIGN if self._predictions.refusal else refused

    def _with(self, estimate: Estimate, context: Context) -> Self:
        """Return the result with another estimate and surroundings."""
        return cast("Self", _restored(type(self), estimate, context))

    def _noted(self, notes: tuple[str | Note, ...]) -> Self:
        """Return the result with more footnotes."""
        return self._with(self._estimate, replace(self._context, notes=(*self._context.notes, *notes)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._estimate, self._context)

    def __repr__(self) -> str:
        size = f"{len(self.names)} coefficients, {counted_records(self)} records"
        return f"<{type(self).__name__}: {size}, {privacy_line(self.privacy)}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()


def _restored(kind: type[Results], estimate: Estimate, context: Context) -> Results:
    result = kind.__new__(kind)
    result.__dict__.update(_estimate=estimate, _context=context)
    return result


@error_boundary
def load_results(path: str | PathLike[str], *, key: bytes | None = None) -> Results:
    """Read a result from a file that `Results.save` wrote.

    Parameters
    ----------
    path : path
        File to read.
    key : bytes, optional
        Secret key with which the file was written.

    Returns
    -------
    Results
        The results, which are of the same class as the saved results.

    Raises
    ------
    StorageError
        Raised if the file is damaged, was not written by `save`, was written by a newer version, or was
        written with a different key.
    """
    return Results.load(path, key=key)
