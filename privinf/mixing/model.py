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
    r"""Linear regression on k random mixtures of rows, released by parties that hold different columns.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features, without a constant: `intercept` adds a constant.
    parties : mapping of str to sequence
        Columns of each party: positions or names of columns of X, and ``"y"`` or the name of the Series for
        the response. Each column belongs to one party.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X, in order or by name; values outside the bounds are clipped. With
        "data" the bounds are computed from the rows, with a warning, because the guarantee does not cover
        such bounds.
    y_bounds : (low, high) or "data"
        Public bounds of the response; values outside the bounds are clipped. With "data" the bounds are
        computed from the rows, with a warning, because the guarantee does not cover such bounds.
    k : int, "auto" or "paper", optional
        Number of mixed rows. "auto" (default) computes it from n, the noise and `rsquared`, never from the
        data. "paper" is the paper's rule, sqrt(n)/sigma, with sigma the noise per unit of sensitivity.
    kind : {"countsketch", "signs", "hadamard"}, optional
        Mixing matrix; all have the same accuracy, and "countsketch" (default) is the fastest.
    seed : int
        Public seed of the mixing matrix.
    intercept : bool, optional
        Whether to release the all-ones row and add ``const`` as the first column (default).
    share : float, optional
        Share of the all-ones row. Default: computed from the noise and n.
    diameter : {"own", "largest"}, optional
        Diameter that scales the noise of a party: its own (default), or the largest of all parties (d_max of
        the paper).
    variant : {"default", "paper"}
        "paper" changes the defaults to those of the paper's Algorithm 2: ``k="paper"``, ``kind="signs"``,
        ``intercept=False``, ``diameter="largest"``, and in `fit` ``calibration="classic"`` and
        ``debias=False``. Arguments that you pass are used in both variants. The noise is the paper's if
        bounds are symmetric around 0.
    rsquared : float, optional
        Public guess of R^2 in (0, 1), for ``k="auto"``; default 0.8.
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        A column does not match its declaration, a bound that the sensitivity needs is missing or invalid, or
        an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one person's row (replace-one). Each party's release costs the
    budget of `fit`. A person has a row at every party, so the totals of the report compose all releases, and
    ``privacy.parties`` lists each party alone.

    The de-biased estimator solves ``(X'X - k S) w = X'y`` on the mixed rows: see `MixedLeastSquares` for its
    variance, its t intervals and its F score test. The noise shrinks the paper's plain estimator
    (debias=False) toward zero. The result of `fit` then has the estimated bias as its attribute `bias`, and
    no intervals.

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
            Formula of a regression on released columns, which are numeric or factors (see `regress`).
        data : DataFrame, or any other table with a fixed order of its rows
            Raw rows.
        schema : Schema
            Public bounds or levels of every column of the parties.
        parties : mapping of str to sequence of str
            Columns of each party; each column once. Columns that the formula does not name are released as
            well.
        k : int, "auto" or "paper", optional
            Number of mixed rows. "auto" (default) computes it from n, the noise and `rsquared`, never from
            the data. "paper" is the paper's rule, sqrt(n)/sigma, with sigma the noise per unit of
            sensitivity.
        kind : {"countsketch", "signs", "hadamard"}, optional
            Mixing matrix; all have the same accuracy, and "countsketch" (default) is the fastest.
        seed : int
            Public seed of the mixing matrix.
        intercept : bool, optional
            Whether to release the all-ones row and add ``const`` as the first column (default).
        share : float, optional
            Share of the all-ones row. Default: computed from the noise and n.
        diameter : {"own", "largest"}, optional
            Diameter that scales the noise of a party: its own (default), or the largest of all parties (d_max
            of the paper).
        variant : {"default", "paper"}
            "paper" changes the defaults to those of the paper's Algorithm 2: ``k="paper"``, ``kind="signs"``,
            ``intercept=False``, ``diameter="largest"``, and in `fit` ``calibration="classic"`` and
            ``debias=False``. Arguments that you pass are used in both variants. The noise is the paper's if
            bounds are symmetric around 0.
        rsquared : float, optional
            Public guess of R^2 in (0, 1), for ``k="auto"``; default 0.8.
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them (default), or impute the middle of the public bounds.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        RMGMOLS
            The model; nothing is released or charged yet.

        Raises
        ------
        SchemaError
            A column belongs to no schema, or to two parties.
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
        Features, without a constant: `intercept` adds a constant.
    parties : mapping of str to sequence
        Columns of each party: positions or names of columns of X, and ``"y"`` or the name of the Series for
        the response. Each column belongs to one party.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X, in order or by name; values outside the bounds are clipped. With
        "data" the bounds are computed from the rows, with a warning, because the guarantee does not cover
        such bounds.
    y_bounds : (low, high) or "data"
        Public bounds of the response; values outside the bounds are clipped. With "data" the bounds are
        computed from the rows, with a warning, because the guarantee does not cover such bounds.
    intercept : bool
        Whether to add ``const`` as the first column, and center the others by their bounds before the noise.
    diameter : {"own", "largest"}
        Diameter that scales the noise of a party: its own (default), or the largest of all parties (d_max of
        the paper).
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        A column does not match its declaration, a bound that the sensitivity needs is missing or invalid, or
        an argument is invalid. No error message contains a value of a row.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one person's row (replace-one). Every number of the row is sent
    with noise. For one regression this method needs far more people than `RMGMOLS`: see phi in
    `MixingPlan.check`.

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
            Formula of a regression on released columns, which are numeric or factors (see `regress`).
        data : DataFrame, or any other table with a fixed order of its rows
            Raw rows.
        schema : Schema
            Public bounds or levels of every column of the parties.
        parties : mapping of str to sequence of str
            Columns of each party; each column once. Columns that the formula does not name are released as
            well.
        intercept : bool
            Whether to add ``const`` as the first column, and center the others by their bounds before the
            noise.
        diameter : {"own", "largest"}
            Diameter that scales the noise of a party: its own (default), or the largest of all parties (d_max
            of the paper).
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them (default), or impute the middle of the public bounds.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.

        Returns
        -------
        DGMOLS
            The model; nothing is released or charged yet.

        Raises
        ------
        SchemaError
            A column belongs to no schema, or to two parties.
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
    """Uncorrected least squares on all rows with Gaussian noise: the biased baseline of the paper.

    The release is that of `DGMOLS`. In contrast to `DGMOLS`, `fit` has ``debias=False`` by default, so the
    result has no intervals. The attribute ``bias`` of the result estimates the bias from the noise.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response.
    X : array_like or DataFrame, shape (n, p)
        Features, without a constant: `intercept` adds a constant.
    parties : mapping of str to sequence
        Columns of each party: positions or names of columns of X, and ``"y"`` or the name of the Series for
        the response. Each column belongs to one party.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X, in order or by name; values outside the bounds are clipped. With
        "data" the bounds are computed from the rows, with a warning, because the guarantee does not cover
        such bounds.
    y_bounds : (low, high) or "data"
        Public bounds of the response; values outside the bounds are clipped. With "data" the bounds are
        computed from the rows, with a warning, because the guarantee does not cover such bounds.
    intercept : bool
        Whether to add ``const`` as the first column, and center the others by their bounds before the noise.
    diameter : {"own", "largest"}
        Diameter that scales the noise of a party: its own (default), or the largest of all parties (d_max of
        the paper).
    missing : {"raise", "impute-public"}
        Handling of missing values: refuse them (default), or impute the middle of the public bounds.
    ledger : Ledger, optional
        Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
        refuses a release that would exceed the limit. By default the model makes a new ledger.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one person's row (replace-one). Every number of the row is sent
    with noise.

    References
    ----------
    Wu et al. (2022), section 5.1, baseline "BGM-OLS".
    """

    debias = False
