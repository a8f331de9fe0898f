"""What models share: reasons for options that they lack; two doors of the models of one release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import doors, refuses
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.fitting.rows import ModelRows, refuse_federation, rows_of_table
from privinf.mechanisms.rows import Rows
from privinf.releases import Release
from privinf.schema import Schema
from privinf.typing import (
    AnyPath,
    Calibration,
    Missing,
    RngLike,
    SourceName,
    SpendingOptions,
    Table,
)

# ---- spending

# Why a word means nothing for some models.
SITES_NOISE = "is for rows in one place that are released once: here the noise is the federation's"
ITERATIONS = (
    "is for optimizers of a likelihood: here the budget decides the steps, and all of them are released"
)
# What statsmodels' fit takes and no model here can.
STATSMODELS = {
    **dict.fromkeys(("disp", "maxiter", "start_params", "full_output", "callback", "tol"), ITERATIONS),
    "cov_kwds": "is not needed: the cluster is the schema's unit, and no covariance has another option",
    "use_t": "is a word of t_test() here: degrees of freedom follow from the release",
    "scale": "takes the residual variance as known: it is estimated from the release",
    "use_correction": "is the factor of HC1: ask for cov_type='HC1'",
}
# Why `machines` and `parties` of older versions are refused where rows are at sites.
SITES_NOW = "is called sites= now"
NO_LEVEL = "name what may be spent: epsilon= with delta=, mu= or rho="


def to_file(options: SpendingOptions, to: AnyPath | None) -> dict[str, Any]:
    """Return the options of one release by name, with the file that it is written to, if there is one."""
    return {**options.spending(), **({} if to is None else {"to": to})}


# ---- models


# What statsmodels calls a model's rows, which no model here keeps.
RAW_ROWS = ("data", "endog", "exog", "orig_endog", "orig_exog", "wendog", "wexog")
NOT_SHOWN = (
    "{}: a model shows no rows; what they release is in the result, names in result.model.exog_names, and "
    "the rows are where you took them from"
)


class HidesRows:
    """A model that shows no rows: statsmodels' attributes that hold some say why they are not there."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in RAW_ROWS:
            raise NotAvailableError(NOT_SHOWN.format(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@doors
class ReleaseModel(HidesRows):
    """A model with two doors: raw rows (holders and analyst simulated in one process), or a release.

    Subclasses set `mechanism_class` (of mechanisms with ``release(rows, ...)``) and `kind`, and implement
    `fit`.
    """

    kind: ClassVar[str]
    mechanism_class: ClassVar[Any]

    mechanism: Any
    ledger: Ledger
    _rows: Rows | None
    _release: Release | None

    def _bind(self, mechanism: Any, held: ModelRows, ledger: Ledger | None) -> None:
        self.mechanism = mechanism
        self.ledger = check_ledger(ledger)
        self._rows = held.rows
        self._release = None

    @classmethod
    def _of_table(
        cls,
        formula: str,
        data: Table,
        schema: Schema,
        missing: Missing,
        ledger: Ledger | None,
        options: Mapping[str, Any],
    ) -> Self:
        """Return the model of a formula over one table; `options` are the mechanism's."""
        refuse_federation(data, cls.__name__)
        mechanism = cls.mechanism_class(schema, formula, missing=missing, **options)
        model = cls.__new__(cls)
        model._bind(mechanism, rows_of_table(mechanism.design, data, missing=missing), ledger)
        return model

    @classmethod
    def from_release(
        cls, release: Release, *, schema: Schema | None = None, ledger: Ledger | None = None
    ) -> Self:
        """Build the model at the analyst, from what the holders sent; no raw row exists here.

        Parameters
        ----------
        release : Release
        schema : Schema, optional
            What the release must have been made with.
        ledger : Ledger, optional

        Raises
        ------
        AlignmentError
            The release is of another kind, or was made with another schema.
        """
        if not isinstance(release, Release):
            raise ArgumentError(f"from_release needs a privinf Release, got {type(release).__name__}")
        if schema is not None and release.design.schema != schema:
            raise AlignmentError(
                "the release was made with another schema: bounds, levels or public columns differ from the "
                "schema given here"
            )
        model = cls.__new__(cls)
        model.mechanism = None
        model.ledger = check_ledger(ledger)
        model._rows = None
        model._release = release.require(cls.kind, cls.__name__)
        return model

    @refuses(STATSMODELS, NotAvailableError)
    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        to: AnyPath | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release the rows once, as the mechanism of the model does.

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
        rng : None, int or Generator, optional
            None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not
            private; the results are marked as such.
        to : path, optional
            Parquet file to which a release of rows is written block by block, with everything else in
            ``<name>.json`` next to it, so that neither rows nor messages need to fit in memory. The JSON is
            written last; without it the file is not a release. `load_release` reads both.
        calibration : {"exact", "classic"}, optional
            How `epsilon` and `delta` determine the noise. "exact" (default) is the exact account of Gaussian
            noise. "classic" is the textbook formula, to reproduce published results only.
        source : {"lattice", "opendp"}, optional
            Sampler of secure noise: privinf's own (default), or OpenDP's.
        ledger : Ledger, optional
            Budget ledger. It refuses the release before any row is read if its limit would be exceeded, and
            it is charged before anything is released. Default: the ledger of the model.

        Returns
        -------
        Release
            Its kind is that of the model.
        """
        options = SpendingOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            calibration=calibration,
            source=source,
        )
        return self._released(ledger, to_file(options, to))

    def _released(self, ledger: Ledger | None, spending: Mapping[str, Any]) -> Release:
        if self._rows is None:
            raise NotAvailableError("this model was built from a release: there are no rows to release again")
        account = self.ledger if ledger is None else check_ledger(ledger)
        released: Release = self.mechanism.release(self._rows, ledger=account, **spending)
        return released

    def _given_release(self, spending: Mapping[str, Any]) -> Release | None:
        """Return the release the model was built from, refusing budget arguments beside it."""
        if self._release is None:
            return None
        given = [name for name, value in spending.items() if value is not None]
        if given:
            raise ArgumentError(
                f"{', '.join(given)}: this model was built from a release, which fixed its noise and its cost"
            )
        return self._release

    def __repr__(self) -> str:
        state = "rows at hand (not shown)" if self._rows is not None else repr(self._release)
        return f"<{type(self).__name__}: {state}>"
