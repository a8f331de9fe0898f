"""Linear regression on a vertically split table: RMGMOLS, DGMOLS and BGMOLS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd

from privinf.accounting import Ledger
from privinf.errors import ArgumentError, NotAvailableError, SchemaError, SensitivityError
from privinf.inference.solution import Target
from privinf.mechanisms.mixing_matrix import MixingKind
from privinf.mechanisms.mixing_plan import DiameterChoice, Method, MixingPlan, PartyPlan
from privinf.mechanisms.mixing_theory import DEFAULT_RSQUARED
from privinf.mechanisms.parties import CONSTANT
from privinf.mechanisms.rows import data_bounds
from privinf.models.fitting import Fit, Reported, build_results
from privinf.models.joined import formula_design, join, label_design, regression_release
from privinf.models.mixing_results import MixingResults
from privinf.models.mixing_systems import mixing_system, plain_fit, shrunk_params
from privinf.releases import Release
from privinf.schema import Design, Schema
from privinf.typing import Calibration, Missing, RngLike
from privinf.validation import as_generator, check_array

PLAIN = (
    "plain least squares on the released rows is biased towards zero by the noise (`bias` estimates by how "
    "much), so that no interval around it covers; debias=True has intervals"
)
SHRUNK = (
    "shrunk coefficients are for prediction: they are biased on purpose, so that no interval around them "
    "covers; the de-biased fit (shrink=False) has intervals"
)

PartyColumns = Mapping[str, Sequence[int | str]]


class PartyModel:
    """What the multi-party models share: the table, its parties, two doors and the way to a result.

    The first door holds the whole table and simulates the parties in one process, each with noise of its
    own; the second has their releases only.
    """

    method: ClassVar[Method]
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
        table, label = _array_table(y, X)
        names = list(table.columns)
        assigned = {name: _party_columns(items, names, label) for name, items in parties.items()}
        _check_cover(assigned, names)
        from_data = isinstance(bounds, str) or isinstance(y_bounds, str)
        limits = _limits(table, label, bounds, y_bounds)
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
        model.ledger = Ledger() if ledger is None else ledger
        _check_cover({name: [str(c) for c in columns] for name, columns in parties.items()}, None)
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
        model.ledger = Ledger() if ledger is None else ledger
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
        source: Literal["lattice", "opendp"] = "lattice",
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
        how: dict[str, Any] = {"debias": debias, "shrink": shrink, "ridge": ridge, "target": target}
        _check_how(self.debias if debias is None else debias, shrink, ridge, target)
        spending = {
            "epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "calibration": calibration,
            "rng": rng, "source": source,
        }  # fmt: skip
        given: dict[str, Any] = {name: value for name, value in spending.items() if value is not None}
        if self._joined is None:
            joined = join(self.release(**given))
        elif given:
            raise ArgumentError(
                f"{', '.join(given)}: this model was built from releases, which fixed their noise and cost"
            )
        else:
            joined = self._joined
        if label is None and self._formula is not None:
            return self._regression(joined, formula_design(joined, self._formula), **how)
        chosen = label or self._label
        if chosen is None:
            raise ArgumentError(
                f"name the column to regress, label=..., one of {', '.join(joined.design.private_names)}; or "
                "use regress(formula)"
            )
        return self._regression(joined, label_design(joined, chosen, self._order), **how)

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
        _check_how(self.debias if debias is None else debias, shrink, ridge, target)
        design = formula_design(self._joined, formula)
        return self._regression(
            self._joined, design, debias=debias, shrink=shrink, ridge=ridge, target=target
        )

    def _regression(
        self,
        joined: Release,
        design: Design,
        *,
        debias: bool | None,
        shrink: bool,
        ridge: float,
        target: Target,
    ) -> MixingResults:
        corrected = self.debias if debias is None else debias
        release = regression_release(joined, design)
        population = target != "sample"
        system = mixing_system(release, population=population)
        settings: dict[str, Any] = {"population": population, "shrink": shrink, "bias": None}
        reported = None
        if shrink:
            reported = Reported(shrunk_params(release), SHRUNK)
        elif not corrected:
            plain = plain_fit(system, ridge=ridge)
            reported = Reported(plain.params, PLAIN)
            if plain.bias is not None:
                settings["bias"] = (design.to_user[0] @ plain.bias).tolist()
        options = {"Fit": "shrunk for prediction" if shrink else "de-biased" if corrected else "plain"}
        return build_results(
            MixingResults,
            system,
            release=release,
            ledger=self.ledger if self._joined is None else None,
            model=type(self).__name__,
            method=_method(joined),
            fit=Fit(ridge=ridge if corrected else 0.0, target=target),
            options=options,
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


class RMGMOLS(PartyModel):
    r"""Linear regression on k random mixtures of the people's rows, released by parties with own columns.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like or DataFrame, shape (n, p)
        Without a constant: `intercept` adds it.
    parties : mapping of str to sequence
        Columns of each party: positions or names of columns of X, and ``"y"`` (or the Series' name) for the
        response; each column once.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X.
    y_bounds : (low, high) or "data"
    k : int or "auto"
        Mixed rows; "auto" from n, the noise and `rsquared`, never from the data.
    kind : {"countsketch", "signs", "hadamard"}
        The mixing matrix; all have the same accuracy, "countsketch" is the fastest.
    seed : int
        Public seed of the mixing matrix.
    intercept : bool
        Release the all-ones row and add ``const``, first.
    share : float, optional
        Share of the all-ones row.
    diameter : {"own", "largest"}
        Noise by each party's own diameter, or by the largest (the paper's d_max).
    rsquared : float
        Public guess of R^2 for k="auto".
    missing : {"raise", "impute-public"}
    ledger : Ledger, optional

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one person's row. Each party's release costs what `fit` is told; a person
    stands at every party, so the report's totals compose all of them and ``privacy.parties`` has each alone.

    The de-biased estimator solves ``(X'X - k S) w = X'y`` on the mixed rows: see `MixedLeastSquares` for its
    variance, its t intervals and its F score test. The paper's plain estimator (debias=False) is shrunk by
    the noise; `fit` says by how much, and gives no interval for it.

    References
    ----------
    Wu, Yang, Yao, Sun, Liu, Weinberger and Wang (2022), "Differentially private multi-party data release
    for linear regression", section 4.2.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200_000, 3))
    >>> y = X @ [0.5, -0.3, 0.0] + 0.1 * rng.uniform(-1, 1, 200_000)
    >>> model = pi.RMGMOLS(y, X, parties={"a": [0, 1], "b": [2, "y"]}, bounds=[(-1, 1)] * 3, y_bounds=(-1, 1))
    >>> fit = model.fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [0, 0.5, -0.3, 0.0]) < 5 * fit.bse).all()), list(fit.privacy.parties.index)
    (True, ['a', 'b'])
    """

    method = "random-mixing"

    def __init__(
        self,
        y: Any,
        X: Any,
        *,
        parties: PartyColumns,
        bounds: Any = None,
        y_bounds: Any = None,
        k: int | Literal["auto"] = "auto",
        kind: MixingKind = "countsketch",
        seed: int = 0,
        intercept: bool = True,
        share: float | None = None,
        diameter: DiameterChoice = "own",
        rsquared: float = DEFAULT_RSQUARED,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        self._options = {
            "k": k, "kind": kind, "seed": seed, "intercept": intercept, "share": share,
            "diameter": diameter, "rsquared": rsquared,
        }  # fmt: skip
        self.ledger = Ledger() if ledger is None else ledger
        self._bind_arrays(y, X, parties, bounds, y_bounds, missing)


class DGMOLS(PartyModel):
    r"""Linear regression on all rows with Gaussian noise, released by parties with own columns.

    Parameters
    ----------
    y, X, parties, bounds, y_bounds, diameter, missing, ledger
        As for `RMGMOLS`.
    intercept : bool
        Add ``const``, first, and centre the columns by their bounds before the noise.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one person's row; every number of the row is sent with noise. For one
    regression it needs far more people than `RMGMOLS`: phi in `MixingPlan.check` says how many.

    Corrected least squares ``(X'X/n - S)^-1 X'y/n`` with the sandwich of the rows' scores;
    ``epsilon=inf`` is ordinary least squares with HC0.

    References
    ----------
    Wu et al. (2022), section 4.1.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100_000, 2))
    >>> model = pi.DGMOLS(X @ [0.5, -0.3], X, parties={"a": [0], "b": [1, "y"]}, bounds=[(-1, 1)] * 2,
    ...                   y_bounds=(-1, 1))
    >>> fit = model.fit(epsilon=8.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [0.5, -0.3]) < 5 * fit.bse).all())
    True
    """

    method = "gaussian-rows"

    def __init__(
        self,
        y: Any,
        X: Any,
        *,
        parties: PartyColumns,
        bounds: Any = None,
        y_bounds: Any = None,
        intercept: bool = False,
        diameter: DiameterChoice = "own",
        missing: Missing = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        self._options = {"intercept": intercept, "diameter": diameter}
        self.ledger = Ledger() if ledger is None else ledger
        self._bind_arrays(y, X, parties, bounds, y_bounds, missing)


class BGMOLS(DGMOLS):
    """Plain least squares on all rows with Gaussian noise: the paper's biased baseline.

    The release is that of `DGMOLS`; `fit` has debias=False by default, so the result has no intervals, and
    its ``bias`` estimates what the noise has done. Parameters and privacy as for `DGMOLS`.

    References
    ----------
    Wu et al. (2022), section 5.1, baseline "BGM-OLS".
    """

    debias = False


def _check_how(debias: bool, shrink: bool, ridge: float, target: Target) -> None:
    """Refuse options that do not go together, before anything is spent."""
    Fit(ridge=ridge, target=target)
    if shrink and (ridge > 0.0 or target != "population" or not debias):
        raise ArgumentError("shrink=True is a rule of its own: ridge=, target= and debias= do not go with it")
    if not debias and target != "population":
        raise ArgumentError(f"target={target!r} is about intervals, and a plain fit (debias=False) has none")


def _method(joined: Release) -> str:
    parties = len(joined.law["parties"])
    if joined.law["method"] == "gaussian-rows":
        return f"all rows with noise, {parties} parties"
    return f"{joined.law['k']} mixed rows ({joined.law['kind']}), {parties} parties"


def _array_table(y: Any, X: Any) -> tuple[pd.DataFrame, str]:
    """Return features and response in one table, and the response's name."""
    frame = X if isinstance(X, pd.DataFrame) else None
    if frame is None:
        array = check_array(X, "X", ndim=np.ndim(X), finite=False)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise ArgumentError(f"X must have two dimensions, got shape {array.shape}")
        frame = pd.DataFrame(array, columns=[f"x{j + 1}" for j in range(array.shape[1])])
    if any(not isinstance(name, str) for name in frame.columns):
        raise SchemaError("X has column labels that are not strings: rename them")
    if CONSTANT in frame.columns:
        raise SchemaError(f"X has a column {CONSTANT!r}: leave it out, intercept=True adds the constant")
    response = np.asarray(y)
    response = response[:, 0] if response.ndim == 2 and response.shape[1] == 1 else response
    if response.ndim != 1 or len(response) != len(frame):
        raise ArgumentError(f"y of shape {np.shape(y)} does not fit X of shape {frame.shape}")
    label = str(y.name) if isinstance(y, pd.Series) and y.name is not None else "y"
    if label in frame.columns:
        raise SchemaError(f"X has a column called {label!r}, as the response: rename one of them")
    return frame.reset_index(drop=True).assign(**{label: response}), label


def _party_columns(items: Sequence[int | str], names: list[str], label: str) -> list[str]:
    """Return the names of one party's columns."""
    if isinstance(items, (str, int)):
        raise ArgumentError("parties must map each name to a list of columns")
    found = []
    for item in items:
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            if not 0 <= item < len(names) - 1:
                raise ArgumentError(f"column {int(item)} is not among the {len(names) - 1} columns of X")
            found.append(names[int(item)])
        elif item in names:
            found.append(str(item))
        elif item == "y":
            found.append(label)
        else:
            raise SchemaError(f"party column {item!r} is not among: {', '.join(names)}")
    return found


def _check_cover(assigned: Mapping[str, Sequence[str]], names: Sequence[str] | None) -> None:
    """Refuse columns that belong to no party, or to two."""
    if not assigned:
        raise ArgumentError("parties is empty: say which party holds which columns")
    seen: dict[str, str] = {}
    for party, columns in assigned.items():
        if not columns:
            raise ArgumentError(f"party {party!r} has no column")
        for column in columns:
            if column in seen:
                raise SchemaError(f"column {column!r} belongs to party {seen[column]!r} and to {party!r}")
            seen[column] = party
    left = [name for name in names or () if name not in seen]
    if left:
        raise SchemaError(f"column {left[0]!r} belongs to no party")


def _limits(table: pd.DataFrame, label: str, bounds: Any, y_bounds: Any) -> dict[str, tuple[float, float]]:
    """Return the public bounds of every column."""
    names = [name for name in table.columns if name != label]
    if isinstance(bounds, str):
        bounds = data_bounds(table, list(table.columns), names, bounds, "bounds")
    if isinstance(y_bounds, str):
        y_bounds = data_bounds(table, list(table.columns), [label], y_bounds, "y_bounds")[label]
    if bounds is None or y_bounds is None:
        what = "bounds=[(low, high), ...]" if bounds is None else "y_bounds=(low, high)"
        raise SensitivityError(
            f'no public bounds: pass {what}, or write "data" to take them from the rows (a leak that no '
            "claim covers)"
        )
    if not isinstance(bounds, Mapping):
        if len(bounds) != len(names):
            raise SchemaError(f"bounds has {len(bounds)} pairs for {len(names)} columns of X")
        bounds = dict(zip(names, bounds, strict=True))
    absent = [name for name in names if name not in bounds]
    if absent:
        raise SensitivityError(f"no public bounds for {absent[0]!r}: add it to bounds=")
    return {**{name: tuple(bounds[name]) for name in names}, label: tuple(y_bounds)}


def _checked_options(cls: type[PartyModel], options: dict[str, Any]) -> dict[str, Any]:
    mixing = ("k", "kind", "seed", "share", "rsquared") if cls.method == "random-mixing" else ()
    known = ("intercept", "diameter", *mixing)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ArgumentError(f"{cls.__name__} has no option {unknown[0]!r}; options: {', '.join(known)}")
    return options
