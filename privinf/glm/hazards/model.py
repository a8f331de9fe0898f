"""Cox's proportional-hazards regression on one table, or on a federation of sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.model import SITES_NOISE, SITES_NOW, STATSMODELS, Model, SumModelOptions
from privinf.fitting.rows import Limits, ModelRows
from privinf.glm.hazards.path import MOST_NOISE, MOST_NOISE_MODEL
from privinf.glm.hazards.results import PHRegResults
from privinf.glm.hazards.rows import HazardRows, hazard_rows, with_status
from privinf.glm.hazards.running import run_hazards
from privinf.glm.plan import FitRequest
from privinf.mechanisms import arrays
from privinf.progress import progress_bar
from privinf.schema import Schema
from privinf.schema.arrays import CONSTANT
from privinf.typing import (
    Bounds,
    Calibration,
    ColumnLike,
    ColumnsLike,
    Label,
    Missing,
    Pair,
    RngLike,
    SitePairs,
    SpendingOptions,
    SumRelation,
    Table,
    Trust,
)
from privinf.validation import check_choice

FollowUpRule = Literal["longest", "model"]
INTERVALS = 64  # of the grid
STATUS = "status"  # name of a status that is passed as an array
# Options of statsmodels' PHReg that this model does not have.
NOT_HERE = {
    "entry": "is not supported: left truncation needs numbers at risk that depend on two times",
    "strata": "is not supported: every record needs the same baseline hazard; use a factor in the formula",
    "ties": "is not supported: events within an interval of the grid keep their own times",
    "offset": "is not supported: put the column into the formula",
    "weights": "is not supported: every record counts once",
    "y_bounds": "is called horizon= here: times have the public bounds (0, horizon)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PHRegOptions(SumModelOptions):
    """Arguments of the constructors of `PHReg`, which describes them."""

    status: str
    event: Label | None = None
    horizon: float | None = None
    intervals: int = INTERVALS

    def limits(self) -> Limits:
        """Return the public bounds of arrays, whose status is 0 or 1."""
        bounds = self.bounds
        y_bounds: Pair | None = None if self.horizon is None else (0.0, self.horizon)
        return Limits(bounds=bounds, y_bounds=y_bounds)

    def read(self, formula: str, schema: Schema) -> tuple[str, PHRegOptions]:
        """Return the formula of the design, with the column of the status."""
        if not isinstance(self.status, str):
            raise ArgumentError("status= must be the name of a column of the table")
        return with_status(formula, self.status, schema, self.event), self


@error_boundaries
class PHReg(Model[PHRegOptions]):
    r"""Cox's proportional-hazards regression on one table, or on a federation of sites.

    For the rows of several sites, use `from_arrays`, or pass a federation to `from_formula`.

    Parameters
    ----------
    time : array_like, shape (n,)
        Time until the event or until censoring, at least 0. Follow-up ends at `horizon`: later events are not
        used.
    X : array_like or DataFrame, shape (n, d)
        Columns of the regression, without a constant.
    status : array_like, shape (n,), or str
        Status of each record: 1 if the time ended with the event, and 0 if it was censored. If `status` is a
        text, it is the name of the column of X that contains the status.
    bounds : sequence of (low, high), or mapping
        Public bounds of every column of X except the status, in the order of the columns or by name; values
        outside the bounds are clipped.
    horizon : float
        Public end of the follow-up.
    intervals : int
        Number of intervals, all of the same length, of the public time grid on which the baseline hazard is
        estimated. Few intervals are enough unless the hazard changes fast near time 0.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
        records that lack a value. The number of dropped records stays private.
    trust : {"central", "server"}, optional
        Who is trusted with the rows. With "central" (default) one curator holds the rows. With "server" the
        rows are sent to a server. Secure sums need several sites; pass the rows of each site to
        `from_arrays`.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit of the model. A ledger with a limit refuses a release
        that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound is missing or invalid, or an argument is
        invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record, with its time, status and columns (replace-one). The
    number of records, the grid, the horizon and the bounds are public. Everything else that leaves the
    curator or the server has noise, and the privacy report counts all releases of a fit.

    A record is followed until its cumulative hazard, as predicted from its columns, is c. The number c is
    public, and is chosen so that the noise is small enough. If hazards are proportional and effects are
    linear, the coefficients are the same as with a longer follow-up. Otherwise the target is Cox's regression
    with the shorter follow-up. The summary states c (the cumulative hazard at which the follow-up ends) and
    the share of events after the end of the follow-up. A warning is issued if this share is not small.
    Without noise and on a fine time grid, the coefficients are equal to the coefficients of Cox's regression.

    References
    ----------
    Cox (1972), "Regression models and life-tables". Lin and Wei (1989), "The robust inference for the Cox
    proportional hazards model".

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5_000, 2))
    >>> event_time = rng.exponential(size=5_000) / (0.5 * np.exp(X @ [0.8, 0.0]))
    >>> time = np.minimum(event_time, 2.0)
    >>> model = pi.PHReg(time, X, status=event_time <= 2.0, bounds=[(-1, 1)] * 2, horizon=2.0)
    >>> fit = model.fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [0.8, 0.0]) < 4 * fit.bse).all())
    True
    """

    _rows: HazardRows
    _trust: Trust

    @refuses(NOT_HERE, NotAvailableError)
    def __init__(
        self,
        time: ColumnLike,
        X: ColumnsLike,
        *,
        status: ColumnLike | str,
        bounds: Bounds,
        horizon: float,
        intervals: int = INTERVALS,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        table, name = arrays.with_status(X, status, STATUS)
        options = PHRegOptions(
            bounds=_with_status(bounds, arrays.column_names(table), name),
            status=name,
            horizon=horizon,
            intervals=intervals,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        self._from_pair(time, table, options)

    @classmethod
    @refuses({**NOT_HERE, "bounds": "is not an argument here: the schema has the bounds"})
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        status: str,
        event: Label | None = None,
        schema: Schema,
        horizon: float | None = None,
        intervals: int = INTERVALS,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula and a table, or a federation whose sites hold the rows.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"time ~ age + C(group)"``. No constant is added, because the
            constant is part of the baseline hazard.
        data : table or federation
            Raw rows: one table (a data frame, the path of a file, or a reader), or a federation of sites.
        status : str
            Name of the column with the status: 1 if the time ended with the event, and 0 if it was censored.
            The schema declares it with the bounds (0, 1). The status may also be a factor with two levels, of
            which the second is the event. If the levels are texts, pass `event` too.
        event : label, optional
            Level of the status that is the event, if the status is a factor of text levels, such as
            ``"dead"`` of ``["alive", "dead"]``. It must be the second of the two declared levels.
        schema : Schema
            Public bounds and levels of all columns that the formula names, and of the time and the status.
            The bounds of the time are (0, horizon).
        horizon : float, optional
            Public end of the follow-up. The default is the upper bound of the time.
        intervals : int
            Number of intervals, all of the same length, of the public time grid on which the baseline hazard
            is estimated.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            records that lack a value. The number of dropped records stays private.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. The default is "central" for one table, and "server" for a
            federation.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit of the model. By default the model makes a new
            ledger.

        Returns
        -------
        PHReg
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, or an argument is invalid.
        """
        options = PHRegOptions(
            status=status,
            event=event,
            horizon=horizon,
            intervals=intervals,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)

    @classmethod
    @refuses({**NOT_HERE, "machines": SITES_NOW, "parties": SITES_NOW})
    def from_arrays(
        cls,
        sites: SitePairs,
        *,
        status: str,
        bounds: Bounds,
        horizon: float,
        intervals: int = INTERVALS,
        missing: Missing = "raise",
        trust: Trust | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from one pair (time, X) per site, where X is a data frame that contains the status.

        Parameters
        ----------
        sites : sequence or mapping of (time, X)
            Times and columns of every site: a mapping from labels of sites to pairs, or a sequence, whose
            sites are numbered from 0. The sites are simulated in this process; for real sites pass a
            federation to `from_formula`.
        status : str
            Name of the column of every X with the status: 1 if the time ended with the event, and 0 if it was
            censored.
        bounds : sequence of (low, high), or mapping
            Public bounds of every column except the status, in the order of the columns or by name; values
            outside the bounds are clipped.
        horizon : float
            Public end of the follow-up.
        intervals : int
            Number of intervals, all of the same length, of the public time grid on which the baseline hazard
            is estimated.
        missing : {"raise", "impute-public", "drop"}
            Handling of missing values: refuse them (default), impute the middle of the public bounds, or drop
            records that lack a value. The number of dropped records stays private.
        trust : {"server", "secure-sum"}, optional
            With "server" (default) the sites send sums without noise to a server that they trust. With
            "secure-sum" the sites add the noise themselves and mask their sums, so that only the noisy total
            is revealed; this mode needs the optional dependencies ``privinf[federation]``.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit of the model. By default the model makes a new
            ledger.

        Returns
        -------
        PHReg
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            Raised if a column does not match its declaration, a bound is missing or invalid, or an argument
            is invalid. The message names the site whose rows cause the error.
        """
        tables = arrays.sites_with_constant(sites)
        names = arrays.column_names(next(iter(tables.values()))[1])
        options = PHRegOptions(
            bounds=_with_status(bounds, names, status),
            status=status,
            horizon=horizon,
            intervals=intervals,
            missing=missing,
            trust=trust,
            ledger=ledger,
        )
        return cls._from_sites(tables, options)

    def _set_rows(self, model_rows: ModelRows, options: PHRegOptions) -> None:
        """Keep the sites of the rows, with the public grid."""
        assert options.trust is not None
        placed = model_rows.placed(options.trust, zero_out=True, passes=True)
        rows = hazard_rows(placed, options.status, options.horizon, options.intervals)
        super()._set_rows(rows, options)
        self._trust = options.trust

    @refuses({"source": SITES_NOISE})
    @refuses(
        {
            **STATSMODELS,
            "groups": "is not supported: records are independent",
            "cov_type": "is always robust",
        },
        NotAvailableError,
    )
    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        follow_up: FollowUpRule = "longest",
        max_colluding: int = 0,
        relation: SumRelation = "replace-one",
        calibration: Calibration | None = None,
        progress: bool | None = None,
    ) -> PHRegResults:
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
        follow_up : {"longest", "model"}
            How long the fit follows a record whose predicted hazard is high. With "longest" (default) the
            follow-up is the longest for which the variance of the noise is at most 1.5 times the sampling
            variance. The target is then close to Cox's regression with complete follow-up. With "model", the
            variance of the noise is at most 0.4 times the sampling variance. The intervals are then
            narrower, but they rely on proportional hazards and linear effects.
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        relation : {"replace-one", "zero-out"}
            Neighboring tables of the guarantee. Under "zero-out" one record is replaced by a record that
            contributes nothing. The "zero-out" guarantee is weaker.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        progress : bool, optional
            Whether to show a progress bar over the releases of the fit. By default the bar appears after two
            seconds, on a terminal only.

        Returns
        -------
        PHRegResults
            Results with the logarithms of hazard ratios, robust standard errors, tests and the privacy
            report.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid; nothing was spent.
        NotAvailableError
            Raised if there are too few records, or there is too little budget, for the coefficients; nothing
            was spent. The error is also raised if there are too few events; only their count was then
            charged.
        BudgetExceededError
            Raised if the fit would exceed the limit of the ledger; nothing was spent.
        ConvergenceError, NotPositiveDefiniteError
            Raised if, in a fit without noise, there is no finite estimate or columns are collinear.

        Notes
        -----
        **Privacy.** The privacy report counts all releases of a fit. Intervals are quantiles of simulated
        draws, which account for the privacy noise. If the noise is too large for a part of the Hessian,
        intervals are quantiles of a posterior distribution, and the summary names its prior.
        """
        spending = SpendingOptions(
            epsilon=epsilon, delta=delta, mu=mu, rho=rho, rng=rng, calibration=calibration
        )
        most_noise = {"longest": MOST_NOISE, "model": MOST_NOISE_MODEL}[
            check_choice(follow_up, FollowUpRule, "follow_up")
        ]
        request = FitRequest(max_colluding=max_colluding, relation=relation)
        budget: dict[str, Any] = {**spending.spending()}
        with progress_bar(progress, type(self).__name__, unit="sum"):
            return run_hazards(self._rows, self._trust, self.ledger, request, budget, most_noise)

    def __repr__(self) -> str:
        rows = self._rows.rows
        size = f"{rows.total} rows x {len(self._rows.columns)} columns"
        return f"<{type(self).__name__}: {size}, {len(rows.rows)} sites (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("a model with raw rows cannot be pickled: pickle the results instead")


def _with_status(bounds: Bounds, names: list[str], status: str) -> Bounds:
    """Return the bounds of all columns but the constant, of the status too."""
    if bounds is None or isinstance(bounds, str) or status not in names:
        return bounds
    if isinstance(bounds, Mapping):
        return dict(bounds) | {status: (0.0, 1.0)}
    pairs = list(bounds)
    pairs.insert([name for name in names if name != CONSTANT].index(status), (0.0, 1.0))
    return pairs
