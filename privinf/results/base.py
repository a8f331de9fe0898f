"""Results: one class over the estimate of a fit, with derived quantities and exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError
from privinf.inference.estimate import Estimate
from privinf.results import storage
from privinf.results.availability import NEED_COVARIANCE, NEED_DESIGN, NEED_EQUATION, available
from privinf.results.comparison import TableEntry
from privinf.results.context import Context
from privinf.results.delegation import delegated
from privinf.results.export import GLANCE, Caution, Export, caution_kinds
from privinf.results.fitted import FittedResult
from privinf.results.notes import Note, counted_records
from privinf.results.paper_table import paper_table
from privinf.results.rendering import PrivateSummary, UnavailableAttributes
from privinf.results.resampling import privacy_line
from privinf.results.summary import SummaryOptions, flagged_names, flags_of, summarize
from privinf.storage.checksummed import save_text
from privinf.typing import AnyPath, PaperCells, RngLike, SummaryNotes
from privinf.validation import check_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@error_boundaries
class Results(FittedResult, UnavailableAttributes):
    """Results of a private fit: coefficients, tests and intervals.

    Immutable and picklable; made by a model's ``fit``.

    Parameters
    ----------
    estimate : `privinf.inference.estimate` object
        Estimate of p coefficients, in the user's units.
    context : Context
        Cost of the fit, its design, release, estimating equation, options and notes.

    Notes
    -----
    **Privacy.** Reads no rows and costs nothing: every member post-processes the fit's releases.

    Tests use normal and chi-square distributions, or t and F distributions if `use_t` is true. If the noise
    is too large for a covariance, members that need one raise NotAvailableError with the reason, and
    `score_test`, ``conf_int(method="score")`` and `summary` work.

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
        """Return the summary; ``as_text``, ``as_html``, ``as_latex`` and ``as_csv`` render it.

        Parameters
        ----------
        yname, title : str, optional
            Name of the response and title of the table.
        xname : sequence of str, optional
            Names of all coefficients.
        alpha : float
            Intervals are of level ``1 - alpha``.
        slim : bool
            Whether to leave out tests and explanations; warnings and the cost are always printed.
        notes : {"main", "all"}
            "main" prints the warnings and the explanations of the table, "all" every note, with the
            assumptions of the privacy guarantee. ``result.notes``, `report` and `to_dict` always have all
            notes.

        Returns
        -------
        Summary of statsmodels
            The summary prints as text; `as_html` and `as_latex` give other formats.
        """
        options = SummaryOptions(yname=yname, xname=xname, title=title, alpha=alpha, slim=slim, notes=notes)
        return summarize(self, options)

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
            Statistic next to the coefficients: standard errors, or intervals. A result without standard
            errors has intervals by the score test.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01, where the result has p-values. These are the
            levels of statsmodels' ``summary_col(stars=True)``.
        alpha : float
            Intervals have the level ``1 - alpha``.
        digits : int
            Digits after the point, at most 15.
        caption, label : str, optional
            Caption and label of the table; the label is used without changes.

        Returns
        -------
        str
            A note below the table states epsilon, delta, the unit of privacy and the number of records, the
            kinds of the result's cautions, and the weakly identified coefficients.

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
        """Return the table of `to_latex` in HTML, with the note as its footer.

        Parameters
        ----------
        cells : {"se", "ci"}
            Statistic next to the coefficients: standard errors, or intervals. A result without standard
            errors has intervals by the score test.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01, where the result has p-values. These are the
            levels of statsmodels' ``summary_col(stars=True)``.
        alpha : float
            Intervals have the level ``1 - alpha``.
        digits : int
            Digits after the point, at most 15.
        caption : str, optional
            Title above the table.

        Returns
        -------
        str
            The table as HTML text.

        Raises
        ------
        ArgumentError
            An argument is invalid.

        Notes
        -----
        **Privacy.** Post-processing: no rows are read, and nothing is spent.
        """
        return paper_table(self, cells=cells, stars=stars, alpha=alpha, digits=digits).to_html(caption)

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
        """Warnings about normal intervals and the stated delta, as pairs of category and text.

        The tuple is empty if the result has none of these warnings.
        """
        return self._export.cautions

    @property
    def default_model_infos(self) -> dict[str, Callable[[Results], str]]:
        """Rows below the coefficients in statsmodels' ``summary_col``."""
        delta = self.privacy.default_delta
        return {
            "N": counted_records,
            f"epsilon (delta={delta:g})": lambda result: f"{result.privacy.epsilon(delta):.4g}",
            **({"noise": lambda result: result.privacy.stamp} if self.privacy.stamp else {}),
            **({"Cautions": lambda result: caution_kinds(result.cautions)} if self.cautions else {}),
            **({"Flagged": lambda result: flagged_names(result)} if flags_of(self).marked else {}),
        }

    def to_maketables(self) -> TableEntry:
        """Return the result for maketables, as in ``maketables.ETable([a.to_maketables()])``.

        Without this method maketables would show the result as a result of statsmodels, without epsilon and
        cautions.

        Returns
        -------
        object
            Table entry with the hooks of maketables, which return the coefficients and facts of the fit.
        """
        return TableEntry(self.tidy(), dict(zip(GLANCE, self.glance().iloc[0], strict=True)))

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
        """Plot coefficients with total and noise-free intervals; see `privinf.plotting`.

        Parameters
        ----------
        simultaneous : bool
            Whether joint intervals are drawn behind the intervals of the single coefficients.
        alpha : float
            Intervals have the level ``1 - alpha``.
        which : list of str, optional
            Names of the coefficients to plot; default: all but the constant.
        rng : None, int or Generator
            Seed of the joint intervals.
        ax : matplotlib Axes, optional
            Where to plot; default: new axes.

        Returns
        -------
        matplotlib Axes
            The axes with the plot.

        Raises
        ------
        NotAvailableError
            matplotlib is not installed (``privinf[plots]``).
        ArgumentError
            A name is not the name of a coefficient.
        """
        from privinf.plotting import coefficients

        return coefficients(self, simultaneous=simultaneous, alpha=alpha, which=which, rng=rng, ax=ax)

    def report(self, path: AnyPath, *, alpha: float = 0.05, overwrite: bool = False) -> None:
        """Write an HTML report of the result: summary, plots, trade-off curve and ledger lines.

        The page has no scripts and loads nothing; see `privinf.results.page`.

        Parameters
        ----------
        path : path
            File to write.
        alpha : float
            Intervals have the level ``1 - alpha``.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            The file exists and `overwrite` is not True.
        NotAvailableError
            matplotlib is not installed (``privinf[plots]``).
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
        """Write the result to one file, without pickle.

        Parameters
        ----------
        path : path
            File to write.
        records : bool
            Whether to store the release and the scores. Without release and scores the file is small, and the
            loaded result has no bootstrap and no score test. A loaded weakly identified fit of `MomentOLS` or
            `ModulatedOLS` has intervals by the normal distribution or none, and all its coefficients are
            flagged.
        key : bytes, optional
            Secret for an HMAC; without it the checksum only detects accidental changes.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            The file exists and `overwrite` is not True.
        NotAvailableError
            The fit used no noise and `records` is True: release and scores contain the rows.
        """
        storage.save_results(self, path, records=records, key=key, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str], *, key: bytes | None = None) -> Self:
        """Read a result that `save` wrote.

        Parameters
        ----------
        path : path
            File to read.
        key : bytes, optional
            Secret that the file was written with.

        Returns
        -------
        Results
            The saved result.

        Raises
        ------
        StorageError
            The file is damaged, was not written by `save`, has a newer version, or was written with a key
            other than `key`.
        ArgumentError
            The file holds results of a class other than this one.
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
    """Read a result that `Results.save` wrote.

    Parameters
    ----------
    path : path
        File to read.
    key : bytes, optional
        Secret that the file was written with.

    Returns
    -------
    Results
        Results of the class of the fitted model.

    Raises
    ------
    StorageError
        The file is damaged, was not written by `save`, has a newer version, or was written with a key other
        than `key`.
    """
    return Results.load(path, key=key)
