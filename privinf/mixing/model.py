"""Linear regression on a vertically split table: RMGMOLS, DGMOLS and BGMOLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries
from privinf.mixing.party_model import PartyModel, PartyModelOptions
from privinf.schema import Schema
from privinf.typing import (
    Bounds,
    ColumnLike,
    ColumnsLike,
    DiameterChoice,
    Imputation,
    MixingKind,
    Pair,
    PartyColumns,
    RowsRule,
    Table,
    Variant,
)
from privinf.validation import check_choice

# What a variant uses where an argument of the constructor, of a release or of a fit is left out.
VARIANTS: Mapping[Variant, Mapping[str, Any]] = {
    "default": {
        "k": "auto",
        "kind": "countsketch",
        "intercept": True,
        "diameter": "own",
        "calibration": "exact",
        "debias": True,
    },
    "paper": {
        "k": "paper",
        "kind": "signs",
        "intercept": False,
        "diameter": "largest",
        "calibration": "classic",
        "debias": False,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixingModelOptions(PartyModelOptions):
    """Arguments of the constructors of `RMGMOLS`, which describe them."""

    k: int | RowsRule | None = None
    kind: MixingKind | None = None
    seed: int = 0
    intercept: bool | None = None
    share: float | None = None
    diameter: DiameterChoice | None = None
    variant: Variant = "default"
    rsquared: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.variant, Variant, "variant")

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What the variant uses for options that are left out."""
        return VARIANTS[self.variant]

    def plan(self) -> dict[str, Any]:
        """Return what the plan of a release takes."""
        chosen = {name: self.chosen(name) for name in ("k", "kind", "intercept", "diameter")}
        return {**chosen, "seed": self.seed, "share": self.share, "rsquared": self.rsquared}


@error_boundaries
class RMGMOLS(PartyModel):
    r"""Linear regression on k random sums of rows, released by parties that hold different columns.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features, without a column of ones; the argument `intercept` adds the constant.
    parties : mapping of str to sequence
        Columns that each party holds, as positions or names of columns of X. The response is ``"y"``, or the
        name of its Series. Each column belongs to one party.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X, in the order of the columns or by name; values outside the bounds
        are clipped. With "data" the bounds are computed from the rows, with a warning, because the guarantee
        does not cover such bounds.
    y_bounds : (low, high) or "data"
        Public bounds of the response; values outside the bounds are clipped. With "data" the bounds are
        computed from the rows, with a warning, because the guarantee does not cover such bounds.
    k : int, "auto" or "paper", optional
        Number k of mixed rows (random sums of rows). With "auto" (default) k is computed from n, the noise
        and `rsquared`, never from the data. With "paper" k is sqrt(n)/sigma, as in the paper, where sigma is
        the noise per unit of sensitivity.
    kind : {"countsketch", "signs", "hadamard"}, optional
        Kind of the random mixing matrix. All kinds have the same accuracy, and "countsketch" (default) is the
        fastest.
    seed : int
        Public seed of the mixing matrix.
    intercept : bool, optional
        Whether to also release the noisy sum over all people (the all-ones row of the mixing matrix), and to
        add a constant (``const``) as the first column of the regression (default: True).
    share : float, optional
        Weight of the all-ones row in the mixing matrix, as a share in (0, 1). By default the weight is
        computed from the noise and n.
    diameter : {"own", "largest"}, optional
        Diameter to which the noise of a party is calibrated: the diameter of the party's own columns
        (default), or the largest diameter of all parties (d_max of the paper).
    variant : {"default", "paper"}
        Variant of the algorithm. With "paper" the defaults are those of Algorithm 2 of the paper:
        ``k="paper"``, ``kind="signs"``, ``intercept=False``, ``diameter="largest"``, and in `fit`
        ``calibration="classic"`` and ``debias=False``. An argument that you pass replaces the default in both
        variants. The noise is the same as in the paper if all bounds are symmetric around 0.
    rsquared : float, optional
        Public guess of the R^2 of the regression, in (0, 1), from which ``k="auto"`` computes k; default 0.8.
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one person's row (replace-one). The release of each party costs
    the budget that is passed to `fit`. Every person has a row at every party, so the totals of the privacy
    report are the joint cost of the releases of all parties. The table ``privacy.parties`` lists the cost of
    each party's release alone.

    The debiased estimator w solves ``(X'X - k S) w = X'y`` on the mixed rows, where S is the covariance of
    the noise. With ``debias=False`` the estimator is not corrected, as in the paper, and the noise shrinks it
    toward zero. In this case the result of `fit` has no intervals, and its attribute `bias` is the estimated
    bias.

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
        y: ColumnLike,
        X: ColumnsLike,
        *,
        parties: PartyColumns,
        bounds: Bounds = None,
        y_bounds: Pair | str | None = None,
        k: int | RowsRule | None = None,
        kind: MixingKind | None = None,
        seed: int = 0,
        intercept: bool | None = None,
        share: float | None = None,
        diameter: DiameterChoice | None = None,
        variant: Variant = "default",
        rsquared: float | None = None,
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        options = MixingModelOptions(
            parties=parties,
            bounds=bounds,
            y_bounds=y_bounds,
            k=k,
            kind=kind,
            seed=seed,
            intercept=intercept,
            share=share,
            diameter=diameter,
            variant=variant,
            rsquared=rsquared,
            missing=missing,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        parties: PartyColumns,
        k: int | RowsRule | None = None,
        kind: MixingKind | None = None,
        seed: int = 0,
        intercept: bool | None = None,
        share: float | None = None,
        diameter: DiameterChoice | None = None,
        variant: Variant = "default",
        rsquared: float | None = None,
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula, the full table, its schema and the columns of each party.

        Parameters
        ----------
        formula : str
            Formula of the regression to fit. Its terms are released columns, which are numeric or factors.
        data : DataFrame, or any other table with a fixed order of its rows
            Raw rows.
        schema : Schema
            Public bounds or levels of every column of the parties.
        parties : mapping of str to sequence of str
            Columns that each party holds. Each column belongs to one party. The columns that the formula does
            not name are also released.
        k : int, "auto" or "paper", optional
            Number k of mixed rows (random sums of rows). With "auto" (default) k is computed from n, the
            noise and `rsquared`, never from the data. With "paper" k is sqrt(n)/sigma, as in the paper, where
            sigma is the noise per unit of sensitivity.
        kind : {"countsketch", "signs", "hadamard"}, optional
            Kind of the random mixing matrix. All kinds have the same accuracy, and "countsketch" (default) is
            the fastest.
        seed : int
            Public seed of the mixing matrix.
        intercept : bool, optional
            Whether to also release the noisy sum over all people (the all-ones row of the mixing matrix), and
            to add a constant (``const``) as the first column of the regression (default: True).
        share : float, optional
            Weight of the all-ones row in the mixing matrix, as a share in (0, 1). By default the weight is
            computed from the noise and n.
        diameter : {"own", "largest"}, optional
            Diameter to which the noise of a party is calibrated: the diameter of the party's own columns
            (default), or the largest diameter of all parties (d_max of the paper).
        variant : {"default", "paper"}
            Variant of the algorithm. With "paper" the defaults are those of Algorithm 2 of the paper:
            ``k="paper"``, ``kind="signs"``, ``intercept=False``, ``diameter="largest"``, and in `fit`
            ``calibration="classic"`` and ``debias=False``. An argument that you pass replaces the default in
            both variants. The noise is the same as in the paper if all bounds are symmetric around 0.
        rsquared : float, optional
            Public guess of the R^2 of the regression, in (0, 1), from which ``k="auto"`` computes k; default
            0.8.
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them (default), or impute the middle of the public bounds.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        RMGMOLS
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError
            Raised if a column belongs to no schema, or to two parties.
        """
        options = MixingModelOptions(
            parties=parties,
            k=k,
            kind=kind,
            seed=seed,
            intercept=intercept,
            share=share,
            diameter=diameter,
            variant=variant,
            rsquared=rsquared,
            missing=missing,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)


@error_boundaries
class DGMOLS(PartyModel):
    r"""Linear regression on all rows with Gaussian noise, released by parties that hold different columns.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features, without a column of ones; the argument `intercept` adds the constant.
    parties : mapping of str to sequence
        Columns that each party holds, as positions or names of columns of X. The response is ``"y"``, or the
        name of its Series. Each column belongs to one party.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X, in the order of the columns or by name; values outside the bounds
        are clipped. With "data" the bounds are computed from the rows, with a warning, because the guarantee
        does not cover such bounds.
    y_bounds : (low, high) or "data"
        Public bounds of the response; values outside the bounds are clipped. With "data" the bounds are
        computed from the rows, with a warning, because the guarantee does not cover such bounds.
    intercept : bool
        Whether to add a constant (``const``) as the first column. The other columns are then centered by
        their bounds before noise is added.
    diameter : {"own", "largest"}
        Diameter to which the noise of a party is calibrated: the diameter of the party's own columns
        (default), or the largest diameter of all parties (d_max of the paper).
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if a column does not match its declaration, a bound that the sensitivity needs is missing or
        invalid, or an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one person's row (replace-one). Every number of a row is
    released with noise. For one regression `DGMOLS` needs far more people than `RMGMOLS`; `MixingPlan.check`
    forecasts whether n is large enough for a regression.

    The estimator is corrected least squares, ``(X'X/n - S)^-1 X'y/n``, where S is the covariance of the
    noise. The covariance is the sandwich of the rows' scores. With ``epsilon=inf`` the fit is ordinary least
    squares with HC0 standard errors.

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
        y: ColumnLike,
        X: ColumnsLike,
        *,
        parties: PartyColumns,
        bounds: Bounds = None,
        y_bounds: Pair | str | None = None,
        intercept: bool = False,
        diameter: DiameterChoice = "own",
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        options = PartyModelOptions(
            parties=parties,
            bounds=bounds,
            y_bounds=y_bounds,
            intercept=intercept,
            diameter=diameter,
            missing=missing,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        parties: PartyColumns,
        intercept: bool = False,
        diameter: DiameterChoice = "own",
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a formula, the full table, its schema and the columns of each party.

        Parameters
        ----------
        formula : str
            Formula of the regression to fit. Its terms are released columns, which are numeric or factors.
        data : DataFrame, or any other table with a fixed order of its rows
            Raw rows.
        schema : Schema
            Public bounds or levels of every column of the parties.
        parties : mapping of str to sequence of str
            Columns that each party holds. Each column belongs to one party. The columns that the formula does
            not name are also released.
        intercept : bool
            Whether to add a constant (``const``) as the first column. The other columns are then centered by
            their bounds before noise is added.
        diameter : {"own", "largest"}
            Diameter to which the noise of a party is calibrated: the diameter of the party's own columns
            (default), or the largest diameter of all parties (d_max of the paper).
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them (default), or impute the middle of the public bounds.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        DGMOLS
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError
            Raised if a column belongs to no schema, or to two parties.
        """
        options = PartyModelOptions(
            parties=parties,
            intercept=intercept,
            diameter=diameter,
            missing=missing,
            ledger=ledger,
        )
        return cls._from_formula(formula, data, schema, options)


class BGMOLS(DGMOLS):
    """Least squares on noisy rows without a correction for the noise, the biased baseline of the paper.

    `BGMOLS` releases the same noisy rows as `DGMOLS`. In contrast to `DGMOLS`, `fit` has ``debias=False`` by
    default, so the result has no intervals. The attribute ``bias`` of the result is an estimate of the bias
    that the noise causes.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features, without a column of ones; the argument `intercept` adds the constant.
    parties : mapping of str to sequence
        Columns that each party holds, as positions or names of columns of X. The response is ``"y"``, or the
        name of its Series. Each column belongs to one party.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X, in the order of the columns or by name; values outside the bounds
        are clipped. With "data" the bounds are computed from the rows, with a warning, because the guarantee
        does not cover such bounds.
    y_bounds : (low, high) or "data"
        Public bounds of the response; values outside the bounds are clipped. With "data" the bounds are
        computed from the rows, with a warning, because the guarantee does not cover such bounds.
    intercept : bool
        Whether to add a constant (``const``) as the first column. The other columns are then centered by
        their bounds before noise is added.
    diameter : {"own", "largest"}
        Diameter to which the noise of a party is calibrated: the diameter of the party's own columns
        (default), or the largest diameter of all parties (d_max of the paper).
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one person's row (replace-one). Every number of a row is
    released with noise.

    References
    ----------
    Wu et al. (2022), section 5.1, baseline "BGM-OLS".
    """

    debias = False
