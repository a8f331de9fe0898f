"""What the multi-party models share: the table, its parties, the way from rows or releases to a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pandas as pd

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.solve import Fit, Reported, build_results
from privinf.mechanisms.mixing.party import (
    PartyColumns,
    PartyPlan,
    array_table,
    check_cover,
    column_limits,
    party_columns,
    party_design,
)
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mixing.joined import formula_design, join, label_design, regression_release
from privinf.mixing.results import MixingResults, mixing_system, plain_fit, shrunk_params
from privinf.releases import Release
from privinf.schema import Design, Schema
from privinf.typing import Calibration, Missing, MixingMethod, RngLike, SourceName, Target
from privinf.validation import as_generator

PLAIN = (
    "plain least squares on the released rows is biased towards zero by the noise (`bias` estimates by how "
    "much), so that no interval around it covers; debias=True has intervals"
)
SHRUNK = (
    "shrunk coefficients are for prediction: they are biased on purpose, so that no interval around them "
    "covers; the de-biased fit (shrink=False) has intervals"
)


@dataclass(frozen=True, slots=True)
class RegressionOptions:
    """Options of a fit that go together.

    Attributes
    ----------
    debias, shrink : bool
    ridge : float
    target : {"population", "sample", "penalized"}
    """

    debias: bool
    shrink: bool
    ridge: float
    target: Target


@doors
class PartyModel:
    """What the multi-party models share: the table, its parties, the way from rows or releases to a result.

    The first door holds the whole table and simulates the parties in one process, each with noise of its
    own; the second has their releases only.
    """

    method: ClassVar[MixingMethod]
    debias: ClassVar[bool] = True

    ledger: Ledger
    _table: pd.DataFrame | None
    _schemas: dict[str, Schema]
    _options: dict[str, Any]
    _joined: Release | None
    _label: str | None
    _formula: str | None
    _order: tuple[str, ...] | None
    _data_bounds: bool
    _missing: Missing

    def _bind_arrays(
        self, y: Any, X: Any, parties: PartyColumns, bounds: Any, y_bounds: Any, missing: Missing
    ) -> None:
        table, label = array_table(y, X)
        names = list(table.columns)
        assigned = {name: party_columns(items, names, label) for name, items in parties.items()}
        check_cover(assigned, names)
        from_data = isinstance(bounds, str) or isinstance(y_bounds, str)
        limits = column_limits(table, label, bounds, y_bounds)
        schemas = {name: Schema({c: limits[c] for c in columns}) for name, columns in assigned.items()}
        self._bind(table, schemas, label=label, order=tuple(names), data_bounds=from_data, missing=missing)

    def _bind(
        self,
        table: pd.DataFrame,
        schemas: dict[str, Schema],
        *,
        label: str | None = None,
        formula: str | None = None,
        order: tuple[str, ...] | None = None,
        data_bounds: bool = False,
        missing: Missing = "raise",
    ) -> None:
        self._table, self._schemas, self._joined = table, schemas, None
        self._label, self._formula, self._order = label, formula, order
        self._data_bounds, self._missing = data_bounds, missing

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: pd.DataFrame,
        *,
        schema: Schema,
        parties: PartyColumns,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
        **options: Any,
    ) -> Self:
        """Build the model from a formula, the whole table, its schema and who holds which column.

        Parameters
        ----------
        formula : str
            Over columns as they are released: numeric columns and factors; see `regress`.
        data : DataFrame
        schema : Schema
            Public bounds or levels of every column of the parties.
        parties : mapping of str to sequence of str
            Columns of each party. Columns that the formula does not name are released as well.
        missing : {"raise", "impute-public"}
        ledger : Ledger, optional
        **options
            As for the class: k, kind, seed, intercept, share, diameter, rsquared.

        Raises
        ------
        SchemaError
            A column belongs to no schema, or to two parties.
        """
        model = cls.__new__(cls)
        model._options = _checked_options(cls, options)
        model.ledger = check_ledger(ledger)
        check_cover({name: [str(c) for c in columns] for name, columns in parties.items()}, None)
        schemas = {
            name: Schema({str(column): schema[str(column)] for column in columns})
            for name, columns in parties.items()
        }
        model._bind(data, schemas, formula=formula, missing=missing)
        return model

    @classmethod
    def from_release(
        cls,
        releases: Release | Mapping[str, Release] | Iterable[Release],
        *,
        label: str | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model at the analyst, from what the parties sent; no raw row exists here.

        Parameters
        ----------
        releases : mapping of str to Release, sequence of Release, or a joined Release
        label : str, optional
            The column to regress on all others; or name it in `fit`, or use `regress`.
        ledger : Ledger, optional

        Raises
        ------
        AlignmentError
            The releases do not belong together, or are not of this model's method.
        """
        model = cls.__new__(cls)
        joined = join(releases)
        joined.require(f"joined {cls.method}", cls.__name__)
        model.ledger = check_ledger(ledger)
        model._options, model._table, model._schemas = {}, None, {}
        model._joined, model._label, model._formula, model._order = joined, label, None, None
        return model

    def plan(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        calibration: Calibration = "exact",
    ) -> MixingPlan:
        """Return the public plan that a release at this budget, the same for every party, would follow."""
        if self._table is None:
            raise NotAvailableError("this model was built from releases, whose plan is fixed")
        parties = {
            name: PartyPlan(schema, epsilon=epsilon, delta=delta, mu=mu, rho=rho)
            for name, schema in self._schemas.items()
        }
        return MixingPlan.new(
            parties=parties, n=len(self._table), method=self.method, label=self._response(),
            calibration=calibration, **self._options,
        )  # fmt: skip

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        calibration: Calibration = "exact",
        rng: RngLike = None,
        source: SourceName = "lattice",
    ) -> dict[str, Release]:
        """Release every party's columns once, each with noise of its own.

        Parameters
        ----------
        epsilon, delta, mu, rho : float
            What **each party** may spend; a person's total adds all parties.
        calibration, rng, source
            As for `RandomMixing.release`.

        Returns
        -------
        dict of str to Release
        """
        plan = self.plan(epsilon=epsilon, delta=delta, mu=mu, rho=rho, calibration=calibration)
        assert self._table is not None
        seeds = [None] * len(plan.parties) if rng is None else as_generator(rng).spawn(len(plan.parties))
        self.ledger.check([loss for name in plan.parties for loss in plan.losses(name)])
        for name in plan.parties:  # a fault in the last party's columns must not cost the first one anything
            plan.mechanism(name, missing=self._missing).check_rows(self._table)
        return {
            name: plan.release(
                name, self._table, missing=self._missing, data_bounds=self._data_bounds,
                ledger=self.ledger, rng=seed, source=source,
            )
            for name, seed in zip(plan.parties, seeds, strict=True)
        }  # fmt: skip

    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        label: str | None = None,
        debias: bool | None = None,
        shrink: bool = False,
        ridge: float = 0.0,
        target: Target = "population",
        calibration: Calibration | None = None,
        rng: RngLike = None,
        source: str | None = None,
    ) -> MixingResults:
        """Release (unless built from releases) and regress one column on all others, or by the formula.

        Parameters
        ----------
        epsilon, delta, mu, rho : float
            What each party may spend; ``epsilon=inf`` adds no noise (random mixing remains).
        label : str, optional
            The column to regress on all others; default: y, the model's formula or `from_release`'s label.
        debias : bool, optional
            True: least squares corrected for the noise, with intervals (default but for BGMOLS). False:
            plain least squares as in the paper, without intervals; ``bias`` of the result estimates its bias.
        shrink : bool
            Coefficients for prediction: shrunk by a rule that is fixed before the data, without intervals;
            RMGMOLS with intercept only.
        ridge : float
            Added to the Gram matrix of the scaled, private columns, per person. With debias=True the
            coefficients are the ridge estimate and intervals come from the unpenalised moments.
        target : {"population", "sample", "penalized"}
            Intervals for the population's coefficients, for those of this finite population (mixing and
            noise are then the only error), or for the ridge-penalised ones.
        calibration, rng, source
            As for `release`.

        Returns
        -------
        MixingResults
        """
        design = self._question(self._released_design, label)
        options = _regression_options(
            self.debias if debias is None else debias, shrink, ridge, target, self.method, design
        )
        spending = {
            "epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "calibration": calibration,
            "rng": rng, "source": source,
        }  # fmt: skip
        given: dict[str, Any] = {name: value for name, value in spending.items() if value is not None}
        if self._joined is not None and given:
            raise ArgumentError(
                f"{', '.join(given)}: this model was built from releases, which fixed their noise and cost"
            )
        joined = join(self.release(**given)) if self._joined is None else self._joined
        return self._regression(joined, design, options)

    def regress(
        self,
        formula: str,
        *,
        debias: bool | None = None,
        shrink: bool = False,
        ridge: float = 0.0,
        target: Target = "population",
    ) -> MixingResults:
        """Regress by a formula over released columns; any numeric one may be the response.

        Parameters
        ----------
        formula : str
            ``"y ~ a + b"``: sums of released columns; products and functions of them are refused, a holder
            can release them as columns of its own. ``- 1`` leaves out the constant.
        debias, shrink, ridge, target
            As for `fit`.

        Raises
        ------
        NotAvailableError
            The model holds raw rows (use `fit`), or the formula needs what was not released.
        """
        if self._joined is None:
            raise NotAvailableError(
                "regress() works on releases: from_release(model.release(...)).regress(formula)"
            )
        design = formula_design(self._joined.design, formula)
        corrected = self.debias if debias is None else debias
        options = _regression_options(corrected, shrink, ridge, target, self.method, design)
        return self._regression(self._joined, design, options)

    @property
    def _released_design(self) -> Design:
        """The design of all columns of all parties, as they are or will be released."""
        if self._joined is not None:
            return self._joined.design
        columns = {name: item for schema in self._schemas.values() for name, item in schema.columns.items()}
        centred = self._options.get("intercept", self.method == "random-mixing")
        return party_design(Schema(columns), centred=centred)

    def _question(self, released: Design, label: str | None) -> Design:
        """Return the design of the regression asked for."""
        if label is None and self._formula is not None:
            return formula_design(released, self._formula)
        chosen = label or self._label
        if chosen is None:
            raise ArgumentError(
                f"name the column to regress, label=..., one of {', '.join(released.private_names)}; or use "
                "regress(formula)"
            )
        return label_design(released, chosen, self._order)

    def _regression(self, joined: Release, design: Design, options: RegressionOptions) -> MixingResults:
        release = regression_release(joined, design)
        population = options.target != "sample"
        system = mixing_system(release, population=population)
        settings: dict[str, Any] = {"population": population, "shrink": options.shrink, "bias": None}
        reported = None
        if options.shrink:
            reported = Reported(shrunk_params(release), SHRUNK)
        elif not options.debias:
            plain = plain_fit(system, ridge=options.ridge)
            reported = Reported(plain.params, PLAIN)
            if plain.bias is not None:
                settings["bias"] = (design.to_user[0] @ plain.bias).tolist()
        kind = "shrunk for prediction" if options.shrink else "de-biased" if options.debias else "plain"
        return build_results(
            MixingResults,
            system,
            release=release,
            ledger=self.ledger if self._joined is None else None,
            model=type(self).__name__,
            method=_method(joined),
            fit=Fit(ridge=options.ridge if options.debias else 0.0, target=options.target),
            options={"Fit": kind},
            settings=settings,
            reported=reported,
        )

    def _response(self) -> str | None:
        """Return the label of the default regression, if it is a released column."""
        if self._label is not None or self._formula is None:
            return self._label
        label = self._formula.split("~")[0].strip()
        known = {column for schema in self._schemas.values() for column in schema.columns}
        return label if label in known else None

    def __repr__(self) -> str:
        state = repr(self._joined) if self._table is None else "rows at hand (not shown)"
        return f"<{type(self).__name__}: {state}>"


def _regression_options(
    debias: bool, shrink: bool, ridge: float, target: Target, method: MixingMethod, design: Design
) -> RegressionOptions:
    """Return the options of a fit, once they go together; nothing has been spent by then."""
    Fit(ridge=ridge, target=target)
    if shrink and (ridge > 0.0 or target != "population" or not debias):
        raise ArgumentError("shrink=True is a rule of its own: ridge=, target= and debias= do not go with it")
    if not debias and target != "population":
        raise ArgumentError(f"target={target!r} is about intervals, and a plain fit (debias=False) has none")
    if shrink and (method != "random-mixing" or design.constant is None):
        raise NotAvailableError(
            "shrink=True predicts from centred mixed rows: it needs RMGMOLS with intercept=True and a "
            "regression with a constant"
        )
    return RegressionOptions(debias, shrink, ridge, target)


def _method(joined: Release) -> str:
    parties = len(joined.law["parties"])
    if joined.law["method"] == "gaussian-rows":
        return f"all rows with noise, {parties} parties"
    return f"{joined.law['k']} mixed rows ({joined.law['kind']}), {parties} parties"


def _checked_options(cls: type[PartyModel], options: dict[str, Any]) -> dict[str, Any]:
    mixing = ("k", "kind", "seed", "share", "rsquared") if cls.method == "random-mixing" else ()
    known = ("intercept", "diameter", *mixing)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ArgumentError(f"{cls.__name__} has no option {unknown[0]!r}; options: {', '.join(known)}")
    return options
