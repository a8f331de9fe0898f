"""Results: the typed, immutable facade over one estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.error_boundary import door, doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.bootstrap import parametric_bootstrap
from privinf.inference.estimate import Estimate
from privinf.results import resampling, storage
from privinf.results.availability import NEED_COVARIANCE, NEED_DESIGN, NEED_EQUATION, available
from privinf.results.comparison import TableEntry
from privinf.results.context import Context
from privinf.results.export import GLANCE, PortableResults, caution_kinds
from privinf.results.notes import Note
from privinf.results.rendering import PrivateSummary, UnavailableAttributes
from privinf.results.summary import SummaryOptions, summarize, summarize_as_frames
from privinf.sealed import save_text
from privinf.typing import AnyPath, BootstrapMethod, Floats, RngLike
from privinf.validation import as_generator, check_count, check_fraction, shown

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from statsmodels.iolib.summary2 import Summary


@doors
class Results(UnavailableAttributes, PortableResults):
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

    @property
    def ssr(self) -> float:
        """Sum of squared residuals without privacy noise, from `scale`."""
        freed = self._columns if math.isfinite(self._estimate.df_resid) else 0
        return self.scale * (self.nobs - freed)

    @property
    def ess(self) -> float:
        """Sum of squares that the columns explain, around the mean where there is a constant."""
        return self._total_squares - self.ssr

    @property
    def mse_resid(self) -> float:
        """`ssr` over the number of records less that of coefficients."""
        return self.ssr / (self.nobs - self._columns)

    @property
    def mse_model(self) -> float:
        """`ess` over `df_model`."""
        if not self.df_model:
            raise NotAvailableError("mse_model: the model has no coefficient besides the constant")
        return self.ess / self.df_model

    @property
    def mse_total(self) -> float:
        """Variance of the response (without a constant its mean square), without privacy noise."""
        return self._total_squares / (self.nobs - self.k_constant)

    @property
    def centered_tss(self) -> float:
        """Sum of squares of the response about its mean, from `ssr` and `rsquared`."""
        if not self.k_constant:
            raise NotAvailableError("centered_tss: the columns hold no constant")
        return self._total_squares

    @property
    def _total_squares(self) -> float:
        if self.rsquared == 1.0:
            raise NotAvailableError("sums of squares: the columns explain all of the response")
        return self.ssr / (1.0 - self.rsquared)

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

    def bootstrap(
        self, draws: int = 999, method: BootstrapMethod | None = None, *, rng: RngLike = None
    ) -> resampling.BootstrapResults:
        """Return the bootstrap distribution of the coefficients.

        Parameters
        ----------
        draws : int
        method : {"multiplier", "pairs", "parametric"}, optional
            Random signs on the records' influences; records drawn again and solved again; or draws from the
            normal distribution with the estimate's covariance, which needs no records. Default: "multiplier"
            where records were released and are the sampling error, else "parametric"; ``.method`` of what
            comes back says which.
        rng : None, int or Generator
        """
        context = self._context
        if method is None:
            method = resampling.best_method(self._estimate, self.target)
        if method != "parametric":
            self._require_population(f"method={shown(method)}")
        return resampling.bootstrap(
            self._estimate, context.system, context.design, draws=draws, method=method, rng=rng
        )

    def draws(self, n: int = 1000, *, rng: RngLike = None) -> xr.Dataset:
        """Return draws from the sampling distribution that intervals rest on, dims chain, draw, coefficient.

        Needs the extra ``privinf[arviz]``. A normal distribution about the estimate; multivariate t where the
        whole covariance has degrees of freedom; of a curved fit the draws that its intervals are quantiles
        of. What a bias adds to intervals is not in them: the attribute ``bias`` names the largest.
        """
        law, found = self._sampled(check_count(n, "n", least=2), as_generator(rng))
        told: dict[str, str | float] = (
            {} if self._estimate.bias is None else {"bias": self._estimate.bias.max()}
        )
        return resampling.draws_dataset(
            found, self.names, distribution=law, privacy=_privacy_line(self.privacy), **told
        )

    def _sampled(self, n: int, rng: np.random.Generator) -> tuple[str, Floats]:
        """Return the name of the sampling distribution and n draws from it, shape (n, p)."""
        known = self._estimate
        found = parametric_bootstrap(known.params, known.covariance, draws=n, rng=rng)
        if math.isinf(known.df):
            return "normal sampling distribution", found.draws
        wider = np.sqrt(known.df / rng.chisquare(known.df, (n, 1)))
        return "multivariate t sampling distribution", known.params + wider * (found.draws - known.params)

    def to_arviz(self, n: int = 1000, *, rng: RngLike = None, group: str = "posterior") -> Any:
        """Return `draws` as ArviZ's container (InferenceData, or DataTree from ArviZ 1 on)."""
        return resampling.to_arviz(self.draws(n, rng=rng), group)

    def summary(
        self,
        yname: str | None = None,
        xname: Sequence[str] | None = None,
        title: str | None = None,
        alpha: float = 0.05,
        slim: bool = False,
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
        """
        return self._summarized(SummaryOptions(yname=yname, xname=xname, title=title, alpha=alpha, slim=slim))

    def _summarized(self, told: SummaryOptions) -> PrivateSummary:
        return summarize(self, told)

    def summary2(
        self,
        yname: str | None = None,
        xname: Sequence[str] | None = None,
        title: str | None = None,
        alpha: float = 0.05,
        float_format: str = "%.4f",
    ) -> Summary:
        """Return the summary as statsmodels' ``summary2``, whose ``tables`` are frames; see `summary`.

        Parameters
        ----------
        yname, xname, title, alpha
            As for `summary`.
        float_format : str
            Of the coefficients' table, as ``%`` takes it.
        """
        return summarize_as_frames(
            self, SummaryOptions(yname=yname, xname=xname, title=title, alpha=alpha), float_format
        )

    def plot(
        self,
        *,
        simultaneous: bool = False,
        alpha: float = 0.05,
        which: list[str] | None = None,
        rng: RngLike = 0,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot coefficients with total and noise-free intervals; see `privinf.plotting`."""
        from privinf.plotting import coefficients

        return coefficients(self, simultaneous=simultaneous, alpha=alpha, which=which, rng=rng, ax=ax)

    def report(self, path: AnyPath, *, alpha: float = 0.05, overwrite: bool = False) -> None:
        """Write one web page of the result: summary, plots, trade-off curve and ledger lines.

        HTML without scripts, which loads nothing; see `privinf.results.page`. Raises as `to_json`, and
        NotAvailableError without matplotlib (``privinf[plots]``).
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

    def __repr__(self) -> str:
        size = f"{len(self.names)} coefficients, {self.nobs} records"
        return f"<{type(self).__name__}: {size}, {_privacy_line(self.privacy)}>"

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()


def _privacy_line(report: PrivacyReport) -> str:
    stamp = f", {report.stamp}" if report.stamp else ""
    return f"epsilon {report.epsilon():.4g} at delta {report.default_delta:g} ({report.relation}){stamp}"


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
