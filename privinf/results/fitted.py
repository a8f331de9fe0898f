"""A fitted model: its estimate, where that came from and what it cost; what all of `results` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from privinf.accounting import PrivacyReport
from privinf.error_boundary import doors
from privinf.errors import NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.results.cautions import Cautious
from privinf.results.context import Context, Surroundings

if TYPE_CHECKING:
    import pandas as pd

    from privinf.inference.score_test import Identification, ScoreTestResult
    from privinf.releases import Release
    from privinf.results.constraints import ConstraintLike
    from privinf.results.rendering import PrivateSummary
    from privinf.results.simultaneous import SimultaneousResults
    from privinf.typing import Floats


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """Names that statsmodels' tables ask the model for.

    Attributes
    ----------
    name : str
    endog_names : str
    exog_names : list of str
    """

    name: str
    endog_names: str
    exog_names: list[str]


@doors
class FittedResult(Cautious):
    """An immutable estimate with its surroundings; `Results` adds what is computed of them.

    Summaries, pages, plots, tables and files take this class, so that they need not import `Results`, which
    offers them.
    """

    _estimate: Estimate
    _context: Context

    if TYPE_CHECKING:  # what those read of `Results`

        @property
        def names(self) -> tuple[str, ...]:
            """See `Results`."""
            ...

        @property
        def nobs(self) -> int:
            """See `Results`."""
            ...

        @property
        def use_t(self) -> bool:
            """See `Results`."""
            ...

        @property
        def df_resid(self) -> int:
            """See `Results`."""
            ...

        @property
        def cov_type(self) -> str:
            """See `Results`."""
            ...

        @property
        def params(self) -> pd.Series[float]:
            """See `Results`."""
            ...

        @property
        def bse(self) -> pd.Series[float]:
            """See `Results`."""
            ...

        @property
        def tvalues(self) -> pd.Series[float]:
            """See `Results`."""
            ...

        @property
        def pvalues(self) -> pd.Series[float]:
            """See `Results`."""
            ...

        @property
        def bse_sampling(self) -> pd.Series[float]:
            """See `Results`."""
            ...

        @property
        def noise_share(self) -> pd.Series[float]:
            """See `Results`."""
            ...

        @property
        def rsquared(self) -> float:
            """See `Results`."""
            ...

        @property
        def rsquared_adj(self) -> float:
            """See `Results`."""
            ...

        @property
        def scale(self) -> float:
            """See `Results`."""
            ...

        @property
        def fvalue(self) -> float:
            """See `Results`."""
            ...

        @property
        def f_pvalue(self) -> float:
            """See `Results`."""
            ...

        @property
        def cautions(self) -> tuple[tuple[str, str], ...]:
            """See `Results`."""
            ...

        def _interval(self, alpha: float) -> Floats: ...

        def _rows(self, exog: Any, transform: bool) -> tuple[Floats, pd.Index[Any]]: ...

        def tidy(self, alpha: float = ..., method: Any = ...) -> pd.DataFrame:
            """See `Results`."""
            ...

        def conf_int(self, alpha: float = ..., method: Any = ..., cols: Any = ...) -> pd.DataFrame:
            """See `Results`."""
            ...

        def score_test(self, beta0: ConstraintLike | None = ...) -> ScoreTestResult:
            """See `Results`."""
            ...

        def score_sets_are_quick(self, alpha: float) -> bool:
            """See `Results`."""
            ...

        def simultaneous(self, *args: Any, **options: Any) -> SimultaneousResults:
            """See `Results`."""
            ...

        def summary(self, *args: Any, **options: Any) -> PrivateSummary:
            """See `Results`."""
            ...

    def __init__(self, estimate: Estimate, *, report: PrivacyReport, **context: Unpack[Surroundings]) -> None:
        surroundings = Context(report=report, **context).fit_to(estimate).warned(estimate)
        self.__dict__.update(_estimate=estimate, _context=surroundings)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be set")

    @property
    def estimate(self) -> Estimate:
        """The estimate behind everything, in the user's units."""
        return self._estimate

    @property
    def privacy(self) -> PrivacyReport:
        """What this fit cost; ``.cumulative`` is the whole ledger."""
        return self._context.report

    @property
    def identification(self) -> Identification:
        """How much signal the noise left, and whether it is enough for Wald intervals."""
        found = self._context.identification
        if found is None:
            raise NotAvailableError("identification: this estimator has no such statistic")
        return found

    @property
    def release(self) -> Release | None:
        """What the estimate was made from; None where it was not kept."""
        return self._context.release

    @property
    def model(self) -> ModelLabels:
        """Names of model, response and coefficients."""
        design = self._context.design
        response = "y" if design is None else design.response
        return ModelLabels(self._context.model, response, list(self.names))

    @property
    def method(self) -> str:
        """How the coefficients were estimated."""
        return self._context.method

    @property
    def target(self) -> str:
        """Whose coefficients the intervals are for."""
        return self._context.target

    @property
    def options(self) -> Mapping[str, str]:
        """Named choices, as the summary prints them."""
        return MappingProxyType(dict(self._context.options))

    @property
    def notes(self) -> tuple[str, ...]:
        """Footnotes of the summary."""
        return tuple(note.text for note in self._context.ranked)

    @property
    def _no_moments(self) -> str | None:
        """Why this model has neither R-squared nor a residual variance; None for those that have them."""
        return None

    def _check_settings(self) -> None:
        """Read all that this class takes from its settings: those of a file could be anything."""

    def _rebind(self, context: Context) -> None:
        """Take other surroundings while the result is being made: what was computed of the former goes."""
        for name in ("_inference", "_tests"):
            self.__dict__.pop(name, None)
        self.__dict__["_context"] = context
