"""Common part of models: constructors, and explanations for options that they lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.accounting.purposes import charged_for
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.fitting.rows import (
    Limits,
    ModelRows,
    is_federation,
    refuse_federation,
    rows_of_arrays,
    rows_of_formula,
    rows_of_pairs,
    rows_of_site,
    rows_of_table,
    trust_of_sums,
)
from privinf.mechanisms.rows import Rows
from privinf.releases import Release
from privinf.schema import Schema
from privinf.schema.design import formula_text, refuse_dependent
from privinf.typing import (
    AnyPath,
    Bounds,
    Calibration,
    ColumnLike,
    ColumnsLike,
    Missing,
    Pair,
    RngLike,
    SitePairs,
    SourceName,
    SpendingOptions,
    Table,
    Trust,
)

# ---- spending

# Why a word means nothing for some models.
SITES_NOISE = (
    "can be used only if the rows of one table are released in a single release, which is not so here: "
    "leave the argument out"
)
ITERATIONS = (
    "is an option of iterative optimizers and is not supported: here the privacy budget "
    "determines the number of steps"
)
# Options of statsmodels' fit that no model here supports.
STATSMODELS = {
    **dict.fromkeys(("disp", "maxiter", "start_params", "full_output", "callback", "tol"), ITERATIONS),
    "cov_kwds": ("is not supported: the cluster is the schema's unit, and no covariance has other options"),
    "use_t": (
        "is not an argument of fit(): pass it to t_test(), because degrees of freedom follow from the release"
    ),
    "scale": (
        "is not supported, because it assumes a known residual variance: here it is estimated "
        "from the release"
    ),
    "name": (
        "is not an argument here: pass ledger=ledger.named('...') to the model, and the ledger lists the "
        "charges of its fits under that name"
    ),
    "use_correction": "is not supported: pass cov_type='HC1', which applies the same correction",
}
# Why `machines` and `parties` of older versions are refused where rows are at sites.
SITES_NOW = "is now called sites="
# Where models of sums take rows that are at sites.
SITES_ELSEWHERE = {
    "sites": "is not an argument here: for rows at sites, use from_arrays(sites) with one pair (y, X) per "
    "site, or from_formula with a federation as its data, InProcessFederation({name: Site(rows, schema)})"
}
SEVERAL_TABLES = (
    "data= must be one table or a federation, not several tables: for rows at sites, pass "
    "privinf.federation.InProcessFederation({name: Site(rows, schema)}), or concatenate the tables of one "
    "curator"
)
NO_LEVEL = "no privacy budget was passed: pass epsilon= with delta=, or mu=, or rho="


def refuse_several_tables(data: object) -> None:
    """Raise ArgumentError for a mapping or a list of tables, by the types of its values."""
    values = data.values() if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else ()
    tables = [isinstance(value, Mapping) or hasattr(value, "columns") for value in values]
    if tables and all(tables):
        raise ArgumentError(SEVERAL_TABLES)


def to_file(options: SpendingOptions, to: AnyPath | None) -> dict[str, Any]:
    """Return the options of one release by name, with the file that it is written to, if there is one."""
    return {**options.spending(), **({} if to is None else {"to": to})}


# ---- models


# Names of a model's rows in statsmodels, which no model here keeps.
RAW_ROWS = ("data", "endog", "exog", "orig_endog", "orig_exog", "wendog", "wexog")
NOT_SHOWN = (
    "{} is not available, because models do not show rows: use your own data for the rows, "
    "and result.model.exog_names for the names of the columns"
)


class HidesRows:
    """A model that shows no rows: statsmodels' attributes that hold rows raise errors that explain why."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in RAW_ROWS:
            raise NotAvailableError(NOT_SHOWN.format(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Arguments of the constructors of all models, which describe them; models add their own.

    Attributes
    ----------
    bounds, y_bounds : bounds of arrays
    missing : {"raise", "impute-public"}
    ledger : Ledger or None
    """

    bounds: Bounds = None
    y_bounds: Pair | str | None = None
    missing: Missing = "raise"
    ledger: Ledger | None = None

    def limits(self) -> Limits:
        """Return the public facts of arrays."""
        return Limits(bounds=self.bounds, y_bounds=self.y_bounds)

    @property
    def without_coefficients(self) -> tuple[str, ...]:
        """Names of columns of the design that have no coefficients."""
        return ()

    def with_trust(self, *, alone: bool) -> Self:
        """Return the options with the default trust of rows in one place, or of several sites."""
        return self

    def read(self, formula: str, schema: Schema) -> tuple[str, Self]:
        """Return the formula of the design, and the options including those of the formula."""
        return formula, self


@dataclass(frozen=True, slots=True, kw_only=True)
class SumModelOptions(ModelOptions):
    """Arguments of the constructors of models of sums: of rows in one place, or of several sites.

    Attributes
    ----------
    trust : {"central", "server", "secure-sum"} or None
    sites : array_like, str or None
        Labels of the sites of rows in one place, or the column of a table that holds them.
    """

    y_bounds: Pair | None = None
    trust: Trust | None = None
    sites: ColumnLike | None = None

    def with_trust(self, *, alone: bool) -> Self:
        """Return the options with the trust of rows in one place, or of several sites."""
        return replace(self, trust=trust_of_sums(self.trust, alone=alone and self.sites is None))


OptionsT = TypeVar("OptionsT", bound=ModelOptions)


class Model(HidesRows, Generic[OptionsT]):
    """The constructors of every model: from arrays, from sites, from a formula, from a release.

    A model writes the signatures that its users see. Each of them makes the model's options and passes them
    on, with the rows or the release, to one of four methods here. These read the rows once, into a
    `ModelRows`, and a model stores it in `_set_rows`.
    """

    ledger: Ledger
    _rows: Any
    _release: Release | None
    _pair_rows: ClassVar[Any] = staticmethod(rows_of_site)
    _needs_independent_columns: ClassVar[bool] = True  # no column of a formula may be a sum of others

    def _from_pair(self, y: ColumnLike, X: ColumnsLike, options: OptionsT) -> None:
        """Make the model from arrays."""
        options = options.with_trust(alone=True)
        self._set_rows(self._pair_rows(y, X, options.limits(), missing=options.missing), options)

    @classmethod
    def _from_sites(cls, sites: SitePairs, options: OptionsT) -> Self:
        """Return the model of one pair (y, X) a site."""
        options = options.with_trust(alone=False)
        return cls._of(rows_of_pairs(sites, options.limits(), missing=options.missing), options)

    @classmethod
    def _from_formula(cls, formula: str, data: Table, schema: Schema, options: OptionsT) -> Self:
        """Return the model of a formula over a table, or over a federation."""
        refuse_several_tables(data)
        options = options.with_trust(alone=not is_federation(data))
        formula, options = options.read(formula, schema)
        model_rows = rows_of_formula(formula, data, schema, missing=options.missing)
        if cls._needs_independent_columns:
            refuse_dependent(model_rows.design, options.without_coefficients)
        return cls._of(model_rows, options)

    @classmethod
    def _from_release(cls, release: Release, ledger: Ledger | None) -> Self:
        """Return the model of a release: no raw row exists there."""
        model = cls.__new__(cls)
        model.ledger = check_ledger(ledger)
        model._rows = None
        model._release = release
        return model

    @classmethod
    def _of(cls, model_rows: Any, options: OptionsT) -> Self:
        model = cls.__new__(cls)
        model._set_rows(model_rows, options)
        return model

    def _set_rows(self, model_rows: Any, options: OptionsT) -> None:
        """Keep the rows; models add their own preparations."""
        self.ledger = check_ledger(options.ledger)
        self._rows = model_rows
        self._release = None

    def __repr__(self) -> str:
        state = "rows at hand (not shown)" if self._rows is not None else repr(self._release)
        return f"<{type(self).__name__}: {state}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseModelOptions(ModelOptions):
    """Arguments of the constructors of models of one release.

    Attributes
    ----------
    radius : float or None
    public : sequence of column names or positions
    weights : str or None
        Column of a table.
    data_bounds : bool
        Whether bounds were taken from the rows.
    """

    radius: float | None = None
    public: Sequence[str | int] = ()
    weights: str | None = None
    data_bounds: bool = False

    def limits(self) -> Limits:
        """Return the public facts of arrays."""
        return Limits(bounds=self.bounds, radius=self.radius, y_bounds=self.y_bounds, public=self.public)


ReleaseOptionsT = TypeVar("ReleaseOptionsT", bound=ReleaseModelOptions)


@error_boundaries
class ReleaseModel(Model[ReleaseOptionsT]):
    """A model that takes raw rows (holders and analyst simulated in one process), or a release.

    Subclasses set `kind`, and implement `_mechanism` (with ``release(rows, ...)``) and `fit`.
    """

    kind: ClassVar[str]

    mechanism: Any
    _rows: Rows | None
    _pair_rows = staticmethod(rows_of_arrays)

    @classmethod
    def _mechanism(cls, source: Mapping[str, Any], options: ReleaseOptionsT) -> Any:
        """Return the mechanism of a `source`: a design, or a schema with a formula."""
        raise NotImplementedError

    @classmethod
    def _from_formula(cls, formula: str, data: Table, schema: Schema, options: ReleaseOptionsT) -> Self:
        refuse_federation(data, cls.__name__)
        refuse_several_tables(data)
        options = options.with_trust(alone=True)
        formula, options = options.read(formula, schema)
        mechanism = cls._mechanism({"schema": schema, "formula": formula}, options)
        refuse_dependent(mechanism.design)
        model = cls.__new__(cls)
        model._set_mechanism(
            mechanism, rows_of_table(mechanism.design, data, missing=options.missing), options
        )
        return model

    def _set_rows(self, model_rows: ModelRows, options: ReleaseOptionsT) -> None:
        """Keep the rows of arrays: their design has the radius already."""
        options = replace(options, radius=None, data_bounds=model_rows.data_bounds)
        self._set_mechanism(self._mechanism({"schema": model_rows.design}, options), model_rows, options)

    def _set_mechanism(self, mechanism: Any, model_rows: ModelRows, options: ReleaseOptionsT) -> None:
        self.mechanism = mechanism
        Model._set_rows(self, model_rows.rows, options)

    @classmethod
    def from_release(
        cls, release: Release, *, schema: Schema | None = None, ledger: Ledger | None = None
    ) -> Self:
        """Build the model at the analyst, from releases of the holders; no raw row exists here.

        Parameters
        ----------
        release : Release
            What `release` returned at the holder, or `load_release` read from its file.
        schema : Schema, optional
            Schema that the release must have been made with. By default schemas are not compared.
        ledger : Ledger, optional
            Budget ledger to which the release was charged. The privacy report of a fit also states the total
            of this ledger. A fit charges nothing to the ledger.

        Returns
        -------
        model
            Of the class that the method is called on; its `fit` costs nothing more.

        Raises
        ------
        AlignmentError
            The release is not one that this model can use, or was made with a schema other than `schema`.
        """
        if not isinstance(release, Release):
            raise ArgumentError(f"from_release needs a privinf Release, got {type(release).__name__}")
        if schema is not None and release.design.schema != schema:
            raise AlignmentError(
                "the release was made with another schema: its bounds, levels or public columns "
                "differ from those of schema=; pass the schema of the release, or leave schema= out"
            )
        model = cls._from_release(release.require(cls.kind, cls.__name__), ledger)
        model.mechanism = None
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
        to : path, optional
            Parquet file to which the released rows are written block by block. Everything else is written to
            ``<name>.json`` next to it. The rows and the noisy records then need not fit in memory. The JSON
            file is written last; a Parquet file without it is not a complete release. `load_release` reads
            both.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.
        ledger : Ledger, optional
            Budget ledger that records the cost of the release. If the release would exceed the limit of the
            ledger, it is refused before any row is read. The cost is recorded in the ledger before anything
            is released. The default is the ledger of the model.

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
        with charged_for(f"{type(self).__name__}: {formula_text(self.mechanism.design)}"):
            released: Release = self.mechanism.release(self._rows, ledger=account, **spending)
        return released

    def _release_or_none(self, spending: Mapping[str, Any]) -> Release | None:
        """Return the release the model was built from, refusing budget arguments in addition."""
        if self._release is None:
            return None
        names = [name for name, value in spending.items() if value is not None]
        if names:
            raise ArgumentError(
                f"{', '.join(f'{name}=' for name in names)} cannot be passed, because this model "
                "was built from a release, whose noise and cost are fixed"
            )
        return self._release
