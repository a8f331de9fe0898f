"""What the multi-party models share: the table, its parties, the way from rows or releases to a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.accounting.purposes import charged_for
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.covariances import MIXED_ROWS, check_made
from privinf.fitting.model import STATSMODELS, Model, ModelOptions
from privinf.fitting.rows import PartyTable, refuse_federation, table_of_arrays, table_of_parties
from privinf.fitting.solve import Fit, Reported, build_results, with_covariance
from privinf.mechanisms.mixing.party import PartyPlan, party_design
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mechanisms.rows import EACH_PARTY, refuse_dropping
from privinf.mixing.joined import (
    RegressionOptions,
    formula_design,
    join,
    joined_noise_model,
    label_design,
    regression_options,
    regression_release,
)
from privinf.mixing.results import MixingResults, MixingSettings, mixing_system, plain_fit, shrunk_params
from privinf.release_kinds import RegressionNoiseModel
from privinf.releases import Release
from privinf.schema import Design, Schema
from privinf.typing import (
    Calibration,
    ColumnLike,
    ColumnsLike,
    CovWord,
    DiameterChoice,
    MixingMethod,
    PartyColumns,
    RngLike,
    SourceName,
    SpendingOptions,
    Table,
    Target,
)
from privinf.validation import as_generator

PLAIN = (
    "plain least squares on the released rows is biased towards zero by the noise (see "
    "`bias`), so it has no valid intervals; use debias=True for intervals"
)
SHRUNK = (
    "shrunk coefficients are biased on purpose, for prediction, so they have no valid "
    "intervals; use shrink=False for intervals"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyFitOptions(SpendingOptions):
    """Options of ``fit`` of the models of several parties, which describes them."""

    label: str | None = None
    debias: bool | None = None
    shrink: bool = False
    ridge: float = 0.0
    target: Target = "population"
    cov_type: CovWord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyModelOptions(ModelOptions):
    """Arguments of the constructors of the models of several parties, which describe them.

    Attributes
    ----------
    parties : mapping of str to sequence
    intercept : bool
    diameter : {"own", "largest"}
    formula : str or None
        Of a model that was made from one.
    """

    parties: PartyColumns
    intercept: bool | None = False
    diameter: DiameterChoice | None = "own"
    formula: str | None = None

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What is used for options of models, releases and fits that are left out."""
        return {"calibration": "exact"}

    def chosen(self, name: str) -> Any:
        """Return an option, or its default where it is left out."""
        value = getattr(self, name)
        return self.defaults[name] if value is None else value

    def plan(self) -> dict[str, Any]:
        """Return what the plan of a release takes."""
        return {"intercept": self.intercept, "diameter": self.diameter}


@error_boundaries
class PartyModel(Model[PartyModelOptions]):
    """What the multi-party models share: the table, its parties, the way from rows or releases to a result.

    The first constructor holds the full table and simulates the parties in one process, each with its own
    noise; the second has only their releases.
    """

    method: ClassVar[MixingMethod]
    debias: ClassVar[bool] = True

    _rows: PartyTable | None
    _options: PartyModelOptions | None
    _label: str | None
    _formula: str | None
    _order: Sequence[str] | None

    def _from_pair(self, y: ColumnLike, X: ColumnsLike, options: PartyModelOptions) -> None:
        table = table_of_arrays(
            y, X, options.parties, options.bounds, options.y_bounds, missing=options.missing
        )
        self._set_rows(table, options)

    @classmethod
    def _from_formula(cls, formula: str, data: Table, schema: Schema, options: PartyModelOptions) -> Self:
        refuse_federation(data, cls.__name__)
        table = table_of_parties(data, schema, options.parties, missing=options.missing)
        return cls._of(table, replace(options, formula=formula))

    def _set_rows(self, model_rows: PartyTable, options: PartyModelOptions) -> None:
        """Keep the table and the regression that the model is made for."""
        super()._set_rows(model_rows, options)
        self._options = options
        self._order = model_rows.order
        self._label = model_rows.label
        self._formula = options.formula

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
            Releases of the parties, or their result of `join`.
        label : str, optional
            The column to regress on all others. By default the regression of the model that made the releases
            (`release`), by its formula or its y; releases from a plan have none. Then name it here or in
            `fit`, or use `regress`.
        ledger : Ledger, optional
            Kept as the ledger of the model. A fit charges nothing to the ledger.

        Returns
        -------
        model
            Of the class that the method is called on; its `fit` costs nothing more.

        Raises
        ------
        AlignmentError
            The releases do not belong together, or are not of this model's method.
        """
        joined = join(releases)
        joined.require(f"joined {cls.method}", cls.__name__)
        model = cls._from_release(joined, ledger)
        named: RegressionNoiseModel = {} if label is not None else joined.noise_model.get("regression", {})
        model._options = None
        model._order = named.get("order")
        model._label = named.get("response", label)
        model._formula = named.get("formula")
        return model

    def plan(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        calibration: Calibration | None = None,
    ) -> MixingPlan:
        """Return the public plan that a release at this budget, the same for every party, would follow.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. **Each party** spends this;
            the total of a person adds all parties.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.

        Returns
        -------
        MixingPlan
            Its `check` states sizes, noise and price before anything is released.

        Raises
        ------
        NotAvailableError
            The model was built from releases, whose plan is fixed.

        Notes
        -----
        **Privacy.** Computed from public numbers; nothing is released or charged.
        """
        if self._rows is None or self._options is None:
            raise NotAvailableError(
                "plan() is not available, because this model was built from releases, whose plan is fixed"
            )
        parties = {
            name: PartyPlan(schema, epsilon=epsilon, delta=delta, mu=mu, rho=rho)
            for name, schema in self._rows.schemas.items()
        }
        return MixingPlan.new(
            parties=parties,
            n=len(self._rows.rows),
            method=self.method,
            label=self._response(),
            calibration=self._options.defaults["calibration"] if calibration is None else calibration,
            **self._options.plan(),
        )

    @refuses(STATSMODELS, NotAvailableError)
    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> dict[str, Release]:
        """Release every party's columns once, each with noise of its own.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. **Each party** spends this;
            the total of a person adds all parties.
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
        dict of str to Release
            The release of every party, by its name.
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
        spending: dict[str, Any] = {**options.spending()}
        rng = spending.pop("rng", None)
        source = spending.pop("source", "lattice")
        plan = self.plan(**spending)
        table = self._rows
        assert table is not None
        missing = refuse_dropping(table.rows.missing, EACH_PARTY)
        account = self.ledger if ledger is None else check_ledger(ledger)
        seeds = [None] * len(plan.parties) if rng is None else as_generator(rng).spawn(len(plan.parties))
        account.check([loss for name in plan.parties for loss in plan.losses(name)])
        for name in plan.parties:  # a fault in the last party's release must not cost the first one anything
            mechanism = plan.mechanism(name, missing=missing)
            mu = plan.party(name).total_mu(plan.calibration)
            mechanism.check_noise(mu, source, seeded=rng is not None)
            mechanism.check_rows(table.rows)
        with charged_for(f"{type(self).__name__}: {', '.join(plan.parties)}"):
            releases = {
                name: plan.release(
                    name,
                    table.rows,
                    missing=missing,
                    data_bounds=table.data_bounds,
                    ledger=account,
                    rng=seed,
                    source=source,
                )
                for name, seed in zip(plan.parties, seeds, strict=True)
            }
        regression = self._regression_noise_model()
        return {
            name: replace(release, noise_model={**release.noise_model, "regression": regression})
            for name, release in releases.items()
        }

    @refuses(STATSMODELS, NotAvailableError)
    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        label: str | None = None,
        debias: bool | None = None,
        shrink: bool = False,
        ridge: float = 0.0,
        target: Target = "population",
        cov_type: CovWord | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
    ) -> MixingResults:
        """Release (unless built from releases) and regress one column on all others, or by the formula.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. **Each party** spends this;
            the total of a person adds all parties. Random mixing remains without noise.
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
        label : str, optional
            Column to regress on all others; default: y, the formula of the model, or the label of
            `from_release`.
        debias : bool, optional
            True: least squares corrected for the noise, with intervals (default except for BGMOLS). False:
            plain least squares as in the paper, without intervals; ``bias`` of the result estimates its bias.
        shrink : bool
            Whether to return coefficients for prediction, shrunk by a rule that is fixed before the data are
            seen, without intervals; for RMGMOLS only with an intercept.
        ridge : float
            Ridge penalty, at least 0, added to the Gram matrix of the scaled, private columns, per person.
            With ``debias=True`` the coefficients are the ridge estimate, and intervals come from the
            unpenalized moments.
        target : {"population", "sample", "penalized"}
            Coefficients that intervals cover: those of the population, those of these rows alone (mixing and
            noise are then the only error), or the ridge-penalized coefficients.
        cov_type : {"HC0", "HC1"}, optional
            Covariance of the coefficients of single rows (DGMOLS). "HC1" is "HC0" with its sampling part
            multiplied by n/(n - p). Mixed rows have a covariance of their own.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.

        Returns
        -------
        MixingResults
            Results with coefficients, covariance, tests, predictions and the privacy report.
        """
        options = PartyFitOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            label=label,
            debias=debias,
            shrink=shrink,
            ridge=ridge,
            target=target,
            cov_type=cov_type,
            calibration=calibration,
            source=source,
        )
        spending: dict[str, Any] = {**options.spending()}
        covariance = check_made(options.cov_type, "HC0", refused=MIXED_ROWS.get(self.method))
        design = self._requested_design(self._released_design, options.label)
        regression = regression_options(
            self._debias_default if options.debias is None else options.debias,
            options.shrink,
            options.ridge,
            options.target,
            self.method,
            design,
        )
        if self._release is not None and spending:
            raise ArgumentError(
                f"{', '.join(f'{name}=' for name in spending)} cannot be passed, because this model "
                "was built from releases, which fixed their noise and cost"
            )
        joined = join(self.release(**spending)) if self._release is None else self._release
        return with_covariance(self._regression(joined, design, regression), covariance)

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
            Regression over released columns, ``"y ~ a + b"``: sums of them. Products and functions of columns
            are refused; a holder can release them as columns of its own. ``- 1`` leaves out the constant.
        debias : bool, optional
            True: least squares corrected for the noise, with intervals (default except for BGMOLS). False:
            plain least squares as in the paper, without intervals; ``bias`` of the result estimates its bias.
        shrink : bool
            Whether to return coefficients for prediction, shrunk by a rule that is fixed before the data are
            seen, without intervals; for RMGMOLS only with an intercept.
        ridge : float
            Ridge penalty, at least 0, added to the Gram matrix of the scaled, private columns, per person.
            With ``debias=True`` the coefficients are the ridge estimate, and intervals come from the
            unpenalized moments.
        target : {"population", "sample", "penalized"}
            Coefficients that intervals cover: those of the population, those of these rows alone (mixing and
            noise are then the only error), or the ridge-penalized coefficients.

        Returns
        -------
        MixingResults
            Results with coefficients, covariance, tests, predictions and the privacy report.

        Raises
        ------
        NotAvailableError
            The model holds raw rows (use `fit`), or the formula needs columns that were not released.
        """
        if self._release is None:
            raise NotAvailableError(
                "regress() needs a model that was built from a release: "
                "from_release(model.release(...)).regress(formula)"
            )
        design = formula_design(self._release.design, formula)
        corrected = self.debias if debias is None else debias
        options = regression_options(corrected, shrink, ridge, target, self.method, design)
        return self._regression(self._release, design, options)

    @property
    def _debias_default(self) -> bool:
        """Whether fits correct for the noise where they do not state it."""
        return self.debias if self._options is None else self._options.defaults.get("debias", self.debias)

    @property
    def _schemas(self) -> Mapping[str, Schema]:
        return {} if self._rows is None else self._rows.schemas

    @property
    def _released_design(self) -> Design:
        """The design of all columns of all parties, as they are or will be released."""
        if self._release is not None:
            return self._release.design
        columns = {name: item for schema in self._schemas.values() for name, item in schema.columns.items()}
        centred = self._options is not None and self._options.chosen("intercept")
        return party_design(Schema(columns), centred=centred)

    def _requested_design(self, released: Design, label: str | None) -> Design:
        """Return the design of the regression requested."""
        if label is None and self._formula is not None:
            return formula_design(released, self._formula)
        chosen = self._label if label is None else label
        if chosen is None:
            raise ArgumentError(
                "pass label= to name the column to regress, one of "
                f"{', '.join(released.private_names)}, or use regress(formula)"
            )
        return label_design(released, chosen, self._order)

    def _regression(self, joined: Release, design: Design, options: RegressionOptions) -> MixingResults:
        release = regression_release(joined, design)
        population = options.target != "sample"
        system = mixing_system(release, population=population)
        settings: MixingSettings = {"population": population, "shrink": options.shrink, "bias": None}
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
            ledger=self.ledger if self._release is None else None,
            reread=self._release is not None,
            model=type(self).__name__,
            method=_method(joined),
            fit=Fit(ridge=options.ridge if options.debias else 0.0, target=options.target),
            options={"Fit": kind},
            settings=settings,
            reported=reported,
        )

    def _regression_noise_model(self) -> RegressionNoiseModel:
        """Return the regression that the model is made for, as its releases name it."""
        if self._formula is not None:
            return {"formula": self._formula}
        named: RegressionNoiseModel = {} if self._label is None else {"response": self._label}
        return named if self._order is None else {**named, "order": list(self._order)}

    def _response(self) -> str | None:
        """Return the label of the default regression, if it is a released column."""
        if self._label is not None or self._formula is None:
            return self._label
        label = self._formula.split("~")[0].strip()
        columns = {column for schema in self._schemas.values() for column in schema.columns}
        return label if label in columns else None


def _method(joined: Release) -> str:
    noise_model = joined_noise_model(joined)
    parties = len(noise_model["parties"])
    if noise_model["method"] == "gaussian-rows":
        return f"all rows with noise, {parties} parties"
    return f"{noise_model['k']} random combinations of rows ({noise_model['kind']}), {parties} parties"
