"""Generalized linear models from locally private examples (inverse Weierstrass and Bernoulli transforms)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import numpy as np

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import ConvergenceError, NotAvailableError
from privinf.fitting.covariances import NO_FACTOR, check_made
from privinf.fitting.model import STATSMODELS, ReleaseModel, ReleaseModelOptions
from privinf.fitting.rows import ModelRows
from privinf.fitting.solve import MeasuresOfFit, fit_measures, release_report, with_covariance
from privinf.inference.estimate import Estimate
from privinf.inference.noisy_variance import is_hidden
from privinf.inference.score_test import Identification
from privinf.iwp.data import count_dispersion, largest_dispersion
from privinf.iwp.equation import Correction, ExampleScores, check_loss, check_options, default_correction
from privinf.iwp.example_sgd import fit_sgd
from privinf.iwp.noise import distribution_of, examples_noise_model
from privinf.iwp.results import NO_INFLATION, IWPGLMResults, blocked_map
from privinf.iwp.root import chosen_truncation, series_bias, solve_root
from privinf.iwp.score_test import identification, noise_inflation, noise_inflation_interval
from privinf.iwp.solving import (
    NUMERIC,
    WEIGHTS,
    ExampleFit,
    ExampleSettings,
    SolvingMethod,
    averaged,
    binary_names,
    check_combinations,
    check_label,
    check_laplace_columns,
    check_method,
    check_numeric,
    check_release,
    checked_start,
    example_system,
    linear_system,
    parameter_names,
    rooted,
    unstarted,
)
from privinf.mechanisms import LocalExamples
from privinf.mechanisms.rows import EACH_ROW, refuse_dropping
from privinf.releases import Release
from privinf.results.context import Context
from privinf.results.notes import CLIPPED, Note, must_read
from privinf.schema import Design, Schema
from privinf.schema.declared import Level
from privinf.schema.table import check_schema
from privinf.typing import (
    AnyPath,
    ArrayLike,
    BinaryMechanism,
    Bounds,
    Calibration,
    ColumnLike,
    ColumnsLike,
    CovWord,
    ExampleNoise,
    Floats,
    Imputation,
    LabelChoice,
    LossName,
    Pair,
    RngLike,
    SourceName,
    Table,
)
from privinf.validation import check_choice, check_number

SERIES = (
    "correction='series' leaves a bias in the loss of up to {:.2g} per record (appendix D.7 of the paper): "
    "the estimate is biased, and its intervals do not cover."
)
NAIVE = "correction='none' ignores the noise: the estimate is biased, and its intervals do not cover."
PENALIZED = "Ridge {:g} (scaled units): coefficients, intervals and tests are for the ridge-penalized target."
TARGETS = {
    "logistic": "The correction for the noise assumes that the logistic model holds.",
    "multinomial": "The correction for the noise assumes that the multinomial model holds.",
}
SCATTER = (
    "The variance of the counts is {:.3g} times (standard error {:.2g}) that of a Poisson "
    "model. Standard errors are valid in any case; intervals for new counts use this "
    "factor plus two of its standard errors."
)
INFLATION = (
    "Noise inflation: the factor that corrects each record for its noise has mean 1 and a variance of {:.3g} "
    "(95% interval {:.2g} to {:.2g}, which allows for the errors of the coefficients)."
)
SCATTER_LIMIT = (
    "The noise hides the variance of the counts: it is at most {:.3g} times that of a Poisson model. "
    "Standard errors are valid in any case; intervals for new counts use this limit."
)
SCATTER_HIDDEN = (
    "The noise hides the variance of the counts. Standard errors are valid in any case; there are no "
    "intervals of new counts."
)

# Options of the single pass of stochastic gradient descent, `fit_sgd`.
LARGEST_RIDGE = 1e12  # penalties above it overflow after the charge
SINGLE_PASS = ("theta_radius", "batch", "step", "decay", "average", "burn_in", "public_seed")
# Spending options that examples under randomized response refuse, with the reason.
NO_GAUSSIAN_LEVEL = dict.fromkeys(
    ("mu", "rho"),
    "cannot be used here: labels and binary features are sent by randomized response, whose cost is "
    "measured in epsilon. Pass epsilon_x= and epsilon_y= with delta=, or epsilon=",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleModelOptions(ReleaseModelOptions):
    """Arguments of the constructors of `IWPGLM`, which describe them."""

    loss: LossName = "logistic"
    label: LabelChoice | None = None
    levels: Sequence[Level] | None = None
    binary: Sequence[str | int] = ()
    binary_mechanism: BinaryMechanism = "response"
    noise: ExampleNoise = "gaussian"
    response_shares: Mapping[str, float] | None = None

    def read(self, formula: str, schema: Schema) -> tuple[str, ExampleModelOptions]:
        """Return the formula, and the options with how the label is sent."""
        check_choice(self.loss, LossName, "loss")
        check_loss(self.loss, check_choice(self.noise, ExampleNoise, "noise"))
        check_schema(schema)
        if schema.max_rows != 1:
            raise NotAvailableError(
                "IWPGLM needs independent records, so it cannot be fitted with several rows per unit "
                "(max_rows > 1)"
            )
        label = _label_mode(formula, schema, self) if self.label is None else self.label
        return formula, replace(self, label=label)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSpending:
    """Budget of features and label, and its noise, as `IWPGLM.fit` describes them."""

    epsilon: float | None = None
    delta: float | None = None
    epsilon_x: float | None = None
    epsilon_y: float | None = None
    shares: tuple[float, float] | None = None
    rng: RngLike = None
    calibration: Calibration | None = None
    source: SourceName | None = None

    def spending(self) -> dict[str, Any]:
        """Return the options of the budget and the noise that are not None, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(ExampleSpending)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleFitOptions(ExampleSpending):
    """Options of `IWPGLM.fit`, which describes them."""

    method: SolvingMethod = "newton"
    correction: Correction | None = None
    ridge: float = 0.0
    truncation: int | None = None
    start: ArrayLike | None = None
    cov_type: CovWord | None = None
    theta_radius: float | None = None
    batch: int | None = None
    step: float | None = None
    decay: float | None = None
    average: bool | None = None
    burn_in: float | None = None
    public_seed: int | None = None

    def passes(self) -> dict[str, Any]:
        """Return the options of the single pass that are not None, by name."""
        values = {name: getattr(self, name) for name in SINGLE_PASS}
        return {name: value for name, value in values.items() if value is not None}


@error_boundaries
class IWPGLM(ReleaseModel[ExampleModelOptions]):
    r"""Regression and classification from locally private examples: every client sends one noisy record.

    Parameters
    ----------
    y : array_like, shape (n,)
        Response (label) of every record. The quadratic, exponential and logistic losses need labels 0 and 1,
        or -1 and 1; the squared and Poisson losses need numbers. For a label with several levels, use a
        formula and a schema.
    X : array_like or DataFrame, shape (n, p)
        Features. No constant is added: add one with `privinf.add_constant`, or use a formula.
    loss : {"logistic", "squared", "quadratic", "exponential", "multinomial", "poisson"}
        Loss function that is minimized. For labels y of -1 or 1, the quadratic loss is (theta'x y - 1)^2/2,
        and the exponential loss is exp(-theta'x y).
    bounds : sequence of (low, high), mapping, or "data", optional
        Public bounds of the private columns, in the order of the columns or by name; values outside the
        bounds are clipped. Pass `bounds`, `radius` or both. With "data" the bounds are computed from the
        rows, with a warning, because the guarantee does not cover such bounds.
    radius : float, optional
        Radius of the ball onto which the private columns of each row are projected. If `bounds` is passed,
        the columns are scaled by the bounds before the projection.
    y_bounds : (low, high) or "data", optional
        Public bounds of a numeric response, which the squared and Poisson losses need. With "data" the bounds
        are computed from the rows, with a warning, because the guarantee does not cover such bounds.
    public : sequence of column names or positions
        Columns that are public, in addition to the constant of `privinf.add_constant`. Public columns are not
        protected.
    binary : sequence of column names or positions
        Columns with the values 0 and 1. Such columns are released by randomized response.
    binary_mechanism : {"response", "gaussian"}
        How binary columns and factors are released. The choice "response" (default) is randomized response.
        The choice "gaussian" is Gaussian noise, as in the paper, which is less accurate.
    noise : {"gaussian", "laplace"}
        Distribution of the noise of numeric columns and of a numeric response. With "laplace", for the
        logistic, squared and quadratic losses, the guarantee is pure: (epsilon, 0). With Laplace noise the
        standard errors grow fast with the number of numeric columns: the logistic loss is accurate for at
        most three numeric columns.
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
    NotAvailableError
        Raised by `from_formula` and `from_release`, if the loss does not accept the label.

    Notes
    -----
    **Privacy.** Each record is released with noise of its own. Neighboring tables differ in one record
    (replace-one). Numeric features are released together, with Gaussian or Laplace noise, and other features
    by randomized response. The label is released by randomized response or with added noise. One release can
    be used for any number of models at no further cost.

    For the squared, quadratic, exponential and Poisson losses, the score of each noisy record is replaced by
    its inverse Weierstrass (or Bernoulli) transform. The mean of the transformed score over the noise is the
    score without noise. For the logistic and multinomial losses, the series of this transform does not
    converge. The fit then uses the conditional score of Stefanski and Carroll. With ``noise="laplace"`` an
    exact inverse transform exists for the logistic loss too. The paper uses a single pass of stochastic
    gradient descent. Here all noisy records are available at the same time, so the default method is
    different. The default method solves ``mean psi(theta) = ridge theta``, where psi is the corrected score,
    and has sandwich standard errors.

    References
    ----------
    "Learning with locally private examples by inverse Weierstrass private stochastic gradient descent",
    Theorem 5.1 and Algorithm 1. Stefanski and Carroll (1987), Biometrika 74, 703-716.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100_000, 2))
    >>> y = rng.random(100_000) < 1 / (1 + np.exp(-X @ [1.5, -1.0]))
    >>> model = pi.IWPGLM(y, X, loss="logistic", radius=2**0.5)
    >>> fit = model.fit(epsilon_x=16.0, epsilon_y=4.0, delta=1e-5, rng=0)
    >>> bool((abs(fit.params - [1.5, -1.0]) < 4 * fit.bse).all())
    True
    """

    kind = "local-examples"

    _loss: LossName

    @refuses({"weights": WEIGHTS}, NotAvailableError)
    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        loss: LossName = "logistic",
        bounds: Bounds = None,
        radius: float | None = None,
        y_bounds: Pair | str | None = None,
        public: Sequence[str | int] = (),
        binary: Sequence[str | int] = (),
        binary_mechanism: BinaryMechanism = "response",
        noise: ExampleNoise = "gaussian",
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        check_choice(loss, LossName, "loss")
        check_loss(loss, check_choice(noise, ExampleNoise, "noise"))
        check_numeric(loss, y_bounds)
        options = ExampleModelOptions(
            loss=loss,
            bounds=bounds,
            radius=radius,
            y_bounds=y_bounds,
            public=public,
            label=noise if loss in NUMERIC else "response",
            binary=binary,
            binary_mechanism=binary_mechanism,
            noise=noise,
            missing=missing,
            ledger=ledger,
        )
        self._from_pair(y, X, options)

    @classmethod
    @refuses({"weights": WEIGHTS}, NotAvailableError)
    def from_formula(
        cls,
        formula: str,
        data: Table,
        *,
        schema: Schema,
        loss: LossName = "logistic",
        label: LabelChoice | None = None,
        levels: Sequence[Level] | None = None,
        binary: Sequence[str] = (),
        binary_mechanism: BinaryMechanism = "response",
        noise: ExampleNoise = "gaussian",
        response_shares: Mapping[str, float] | None = None,
        radius: float | None = None,
        missing: Imputation = "raise",
        ledger: Ledger | None = None,
        data_bounds: bool = False,
    ) -> Self:
        """Build the model from a formula, raw rows and their public schema.

        Parameters
        ----------
        formula : str
            Formula of the model, such as ``"y ~ x1 + C(group)"``. The formula is evaluated by the holder of
            the rows, and the bounds of its terms follow from the schema.
        data : DataFrame, or any other table with a fixed order of its rows
            Raw rows.
        schema : Schema
            Public bounds or levels of every column that the formula names. If the label is a factor, the
            schema declares its levels; if it is numeric, its bounds.
        loss : {"logistic", "squared", "quadratic", "exponential", "multinomial", "poisson"}
            Loss function that is minimized. For labels y of -1 or 1, the quadratic loss is (theta'x y -
            1)^2/2, and the exponential loss is exp(-theta'x y).
        label : {"auto", "clear", "response", "gaussian", "laplace"}, optional
            How the label is released: unprotected ("clear"), by randomized response on its levels
            ("response"), or with Gaussian or Laplace noise, scaled to its bounds. By default a label that the
            schema declares public is released unprotected, and any other label is released in the form that
            the loss needs. With "auto" the form does not depend on the loss: a public label is released
            unprotected, a label with levels by randomized response, and a numeric label with added noise.
        levels : sequence, optional
            The two levels of a label that the schema declares as a number, for ``label="response"``. By
            default they are the bounds of the label, which must be (0, 1) or (-1, 1). For a label without
            bounds, values above 0 are the second level.
        binary : sequence of str
            Numeric columns with the values 0 and 1. Such columns are released by randomized response, as
            factors always are.
        binary_mechanism : {"response", "gaussian"}
            How binary columns and factors are released. The choice "response" (default) is randomized
            response. The choice "gaussian" is Gaussian noise, as in the paper, which is less accurate.
        noise : {"gaussian", "laplace"}
            Distribution of the noise of numeric columns, and of a numeric label unless `label` names a
            different one. With "laplace", for the logistic, squared and quadratic losses, the guarantee is
            pure: (epsilon, 0). With Laplace noise the standard errors grow fast with the number of numeric
            columns: the logistic loss is accurate for at most three numeric columns.
        response_shares : mapping of str to float, optional
            Relative shares of `epsilon_x` for the features that are released by randomized response, by name.
            The name of a factor is the name of its column. A feature without a share in this mapping, and
            every column with added noise, has the share 1.
        radius : float, optional
            Radius of the ball onto which the private columns of each row, scaled by their bounds, are
            projected. By default rows are not projected.
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them (default), or impute the middle of the public bounds
            (for a factor, its first level).
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit and release of the model. A ledger with a limit
            refuses a release that would exceed the limit. By default the model makes a new ledger.
        data_bounds : bool
            Whether the bounds of the schema were computed from these rows. The guarantee does not cover such
            bounds, and the ledger states this.

        Returns
        -------
        IWPGLM
            The model. Making a model releases nothing and costs nothing.

        Raises
        ------
        SchemaError, NotAvailableError
            Raised if the schema does not declare a column that the formula needs, or declares several rows
            per unit. The error is also raised if the loss does not accept the label, or if the data are a
            federation.
        """
        options = ExampleModelOptions(
            loss=loss,
            label=label,
            levels=levels,
            binary=binary,
            binary_mechanism=binary_mechanism,
            noise=noise,
            response_shares=response_shares,
            radius=radius,
            missing=missing,
            ledger=ledger,
            data_bounds=data_bounds,
        )
        model = cls._from_formula(formula, data, schema, options)
        check_label(loss, model.mechanism.label.levels)
        return model

    @classmethod
    def _mechanism(cls, source: Mapping[str, Any], options: ExampleModelOptions) -> LocalExamples:
        assert options.label is not None
        binary = cast(Sequence[str], options.binary)
        if isinstance(source["schema"], Design):  # columns of arrays have positions too
            binary = binary_names(options.binary, source["schema"].names)
        return LocalExamples(
            **source,
            label=options.label,
            levels=options.levels,
            binary=binary,
            binary_mechanism=options.binary_mechanism,
            noise=options.noise,
            response_shares=options.response_shares,
            radius=options.radius,
            missing=refuse_dropping(options.missing, EACH_ROW),
            data_bounds=options.data_bounds,
        )

    def _set_mechanism(
        self, mechanism: LocalExamples, model_rows: ModelRows, options: ExampleModelOptions
    ) -> None:
        super()._set_mechanism(mechanism, model_rows, options)
        self._loss = options.loss

    @classmethod
    def from_release(
        cls,
        release: Release,
        *,
        loss: LossName = "logistic",
        schema: Schema | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model from a release; the loss function must suit the response of the release.

        Parameters
        ----------
        release : Release
            Release that the method `release` returned, or that `load_release` read from a file.
        loss : {"logistic", "squared", "quadratic", "exponential", "multinomial", "poisson"}
            Loss function that is minimized. For labels y of -1 or 1, the quadratic loss is (theta'x y -
            1)^2/2, and the exponential loss is exp(-theta'x y).
        schema : Schema, optional
            Schema with which the release must have been made. By default schemas are not compared.
        ledger : Ledger, optional
            Budget ledger to which the release was charged. The privacy report of a fit then also states the
            total cost in this ledger. A fit charges nothing to the ledger.

        Returns
        -------
        IWPGLM
            The model. Its method `fit` costs nothing more.

        Raises
        ------
        AlignmentError
            Raised if this model cannot use the release, or if the release was made with a different schema.
        NotAvailableError
            Raised if the loss does not accept the label of the release.
        """
        model = super().from_release(release, schema=schema, ledger=ledger)
        model._loss = check_choice(loss, LossName, "loss")
        check_label(loss, examples_noise_model(release)["label"].get("levels"))
        check_loss(loss, distribution_of(release))
        check_release(release)
        return model

    @refuses(NO_GAUSSIAN_LEVEL)
    @refuses(STATSMODELS, NotAvailableError)
    def release(  # type: ignore[override]
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        epsilon_x: float | None = None,
        epsilon_y: float | None = None,
        shares: tuple[float, float] | None = None,
        rng: RngLike = None,
        to: AnyPath | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release every record once, with noise.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. The argument
            `shares` divides this epsilon between the features and the label. Pass either `epsilon`, or
            `epsilon_x` and `epsilon_y`. With ``epsilon=inf`` no noise is added.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian.
        epsilon_x : float, optional
            Epsilon of the features: the release of all features together is (epsilon_x, delta)-DP. Let m be
            the number of columns with added noise plus the number of features that are released by randomized
            response. Each feature with randomized response gets a pure epsilon of epsilon_x / m, and the
            columns with Laplace noise get epsilon_x / m per column. For other shares pass `response_shares`.
            Columns with Gaussian noise get the rest of the budget, computed by exact composition. Without
            Gaussian noise the guarantee is (epsilon_x, 0). Leave `epsilon_x` out if all features are public.
        epsilon_y : float, optional
            Epsilon of the label. The guarantee is (epsilon_y, 0) for randomized response and Laplace noise,
            and (epsilon_y, delta) for Gaussian noise. Leave `epsilon_y` out if the label is released
            unprotected.
        shares : (float, float), optional
            Relative shares of `epsilon` for the features and for the label; default (2, 1). Features and
            labels that are released by randomized response or with Laplace noise get their share of
            `epsilon`. Columns with Gaussian noise, and a label with Gaussian noise, get the rest of the
            budget.
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
            Release of kind "local-examples".
        """
        options = ExampleSpending(
            epsilon=epsilon,
            delta=delta,
            epsilon_x=epsilon_x,
            epsilon_y=epsilon_y,
            shares=shares,
            rng=rng,
            calibration=calibration,
            source=source,
        )
        return self._released(ledger, options.spending() | ({} if to is None else {"to": to}))

    @refuses(NO_GAUSSIAN_LEVEL)
    @refuses(STATSMODELS, NotAvailableError)
    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        epsilon_x: float | None = None,
        epsilon_y: float | None = None,
        shares: tuple[float, float] | None = None,
        rng: RngLike = None,
        method: SolvingMethod = "newton",
        correction: Correction | None = None,
        ridge: float = 0.0,
        truncation: int | None = None,
        start: ArrayLike | None = None,
        cov_type: CovWord | None = None,
        theta_radius: float | None = None,
        batch: int | None = None,
        step: float | None = None,
        decay: float | None = None,
        average: bool | None = None,
        burn_in: float | None = None,
        public_seed: int | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
    ) -> IWPGLMResults:
        """Release the rows, unless the model was built from a release, and estimate the coefficients.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. The argument
            `shares` divides this epsilon between the features and the label. Pass either `epsilon`, or
            `epsilon_x` and `epsilon_y`. With ``epsilon=inf`` no noise is added.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian.
        epsilon_x : float, optional
            Epsilon of the features: the release of all features together is (epsilon_x, delta)-DP. Let m be
            the number of columns with added noise plus the number of features that are released by randomized
            response. Each feature with randomized response gets a pure epsilon of epsilon_x / m, and the
            columns with Laplace noise get epsilon_x / m per column. For other shares pass `response_shares`.
            Columns with Gaussian noise get the rest of the budget, computed by exact composition. Without
            Gaussian noise the guarantee is (epsilon_x, 0). Leave `epsilon_x` out if all features are public.
        epsilon_y : float, optional
            Epsilon of the label. The guarantee is (epsilon_y, 0) for randomized response and Laplace noise,
            and (epsilon_y, delta) for Gaussian noise. Leave `epsilon_y` out if the label is released
            unprotected.
        shares : (float, float), optional
            Relative shares of `epsilon` for the features and for the label; default (2, 1). Features and
            labels that are released by randomized response or with Laplace noise get their share of
            `epsilon`. Columns with Gaussian noise, and a label with Gaussian noise, get the rest of the
            budget.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        method : {"newton", "sgd"}
            How the corrected estimating equation is solved. The choice "newton" (default) is Newton's method.
            The choice "sgd" is the method of the paper, a single pass of projected stochastic gradient
            descent over the records.
        correction : {"exact", "conditional", "series", "none"}, optional
            Correction of the scores for the noise. By default it is "exact" if the loss has an exact inverse
            transform, and otherwise "conditional", the conditional score. With Laplace noise every loss has
            an exact inverse transform. The choice "series" is the correction of the paper for the logistic
            loss. With "none" the noise is ignored.
        ridge : float
            Weight of the penalty ``ridge ||theta||^2/2``, in scaled units, from 0 to 1e12. The constant is
            not penalized. With a penalty, intervals are for the coefficients that minimize the penalized loss
            in the population.
        truncation : int, optional
            Number K of terms, for ``correction="series"``. By default K is 1, 2 or 3, whichever has the
            smallest bias by the criterion of appendix D.7 of the paper, evaluated at the estimate of
            regression calibration.
        start : array_like, shape (p,), optional
            Initial coefficients, in the units of the columns. By default they are the estimate of regression
            calibration, and for the logistic loss with Laplace noise the conditional-score estimate. A single
            pass without averaging starts from zero.
        cov_type : {"HC0", "HC1"}, optional
            Covariance of the coefficients, which is the sandwich of the corrected scores of the records. With
            "HC1", for the squared loss, the sampling part of the covariance is multiplied by n/(n - p).
        theta_radius : float, optional
            Radius of the ball onto which the coefficients are projected, in scaled units. The radius is
            required for ``method="sgd"``, and is not used by other methods.
        batch : int, optional
            Number of records per step of ``method="sgd"``; default 128.
        step : float, optional
            Size of the first step of ``method="sgd"``; by default it is computed by the theory of the paper.
        decay : float, optional
            Exponent a of the decreasing steps of ``method="sgd"``: step t has the size ``step * t^-a``.
        average : bool, optional
            Whether to average the iterates of ``method="sgd"``. Only the average of the iterates has
            intervals (by the theory of Polyak and Juditsky).
        burn_in : float, optional
            For ``method="sgd"``: share of all batches that are left out of the average. These batches are the
            first ones.
        public_seed : int, optional
            Public seed of the random order of the records in ``method="sgd"``.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.

        Returns
        -------
        IWPGLMResults
            Results of the fit. If the estimating equation has no stable root, the results have no standard
            errors and state the reason.
        """
        options = ExampleFitOptions(
            epsilon=epsilon,
            delta=delta,
            epsilon_x=epsilon_x,
            epsilon_y=epsilon_y,
            shares=shares,
            rng=rng,
            method=method,
            correction=correction,
            ridge=ridge,
            truncation=truncation,
            start=start,
            cov_type=cov_type,
            theta_radius=theta_radius,
            batch=batch,
            step=step,
            decay=decay,
            average=average,
            burn_in=burn_in,
            public_seed=public_seed,
            calibration=calibration,
            source=source,
        )
        settings = self._settings(correction, truncation, ridge)
        covariance = check_made(cov_type, "HC0", refused=None if self._loss == "squared" else NO_FACTOR)
        spending = options.spending()
        passes = options.passes()
        check_method(method, passes)
        first = None if start is None else checked_start(start, self._parameters)
        release = self._release_or_none(spending)
        if release is None:
            release = self._released(None, spending)
        if settings["correction"] == "series" and truncation is None:
            calibrated: ExampleSettings = {
                **settings,
                "correction": default_correction(self._loss, "gaussian"),
            }
            settings["truncation"] = chosen_truncation(example_system(release, calibrated))
        system = example_system(release, settings)
        if first is not None:
            transform, shift = blocked_map(release, self._loss, system.p)
            first = np.asarray(np.linalg.solve(transform, first - shift), dtype=np.float64)
        if method == "newton":
            solved = rooted(system, solve_root(system, start=first), release, self._loss)
            return with_covariance(self._results(release, system, solved, settings), covariance)
        try:
            single = fit_sgd(system, start=first, theta_radius=passes.pop("theta_radius"), **passes)
            solved = averaged(system, single, release, self._loss)
        except ConvergenceError as reason:
            solved = unstarted(system, first, str(reason), release, self._loss)
        return with_covariance(self._results(release, system, solved, settings), covariance)

    def _settings(
        self, correction: Correction | None, truncation: int | None, ridge: float
    ) -> ExampleSettings:
        if self._release is None:
            parts = self.mechanism.parts
            noise, columns = parts.noise, parts.gaussian
        else:
            noise = distribution_of(self._release)
            columns = len(examples_noise_model(self._release)["gaussian"])
        chosen = default_correction(self._loss, noise) if correction is None else correction
        check_choice(chosen, Correction, "correction")
        order = 1 if chosen == "series" and truncation is None else truncation
        check_options(self._loss, chosen, order, noise)
        if noise == "laplace":
            check_laplace_columns(self._loss, chosen, columns)
        if self._release is None:
            responded = self.mechanism.features.responded
            check_combinations(self._loss, chosen, [feature.levels for feature in responded])
        penalty = check_number(ridge, "ridge", low=0.0, high=LARGEST_RIDGE)
        return {"loss": self._loss, "correction": chosen, "truncation": truncation, "ridge": penalty}

    @property
    def _parameters(self) -> int:
        """Number of coefficients, known before anything is released."""
        if self._release is None:
            design = self.mechanism.design
            levels = self.mechanism.label.levels
        else:
            design = self._release.design
            levels = examples_noise_model(self._release)["label"].get("levels")
        return len(design.names) * (len(levels) - 1 if self._loss == "multinomial" else 1)

    def _results(
        self, release: Release, system: ExampleScores, solved: ExampleFit, settings: ExampleSettings
    ) -> IWPGLMResults:
        names = parameter_names(release, self._loss)
        transform, shift = blocked_map(release, self._loss, len(names))
        clean = solved.clean
        multinomial = self._loss == "multinomial"
        options = {"Loss": self._loss, "Correction": _described(settings), **solved.options}
        strength = None if _biased(system) else identification(system, solved.estimate.params)
        notes = _notes(release, system, solved.estimate.params)
        if self._loss in {"exponential", "poisson"} and settings["correction"] == "exact":
            options["Noise inflation"], text = _inflation(system, solved.estimate, strength)
            notes += (text,)
        if multinomial:
            levels = examples_noise_model(release)["label"]["levels"]
            options["Reference level"] = f"{release.design.response} = {levels[0]!r}"
        linear = linear_system(system)
        design = release.design
        measures = None
        if linear is not None:
            measures = fit_measures(linear, solved.estimate.params, design.constant_direction)
            measures = measures.rescaled(design.y_scale**2)
        return IWPGLMResults(
            solved.estimate.transformed(transform, shift=shift, names=names),
            Context(
                report=release_report(release, self.ledger, reread=self._release is not None),
                design=None if multinomial else release.design,
                release=release,
                system=system,
                sampling_cov=None if clean is None else transform @ clean @ transform.T,
                identification=strength,
                target="penalized" if settings["ridge"] > 0.0 else "population",
                model=type(self).__name__,
                method=solved.method,
                options=options,
                settings=settings | _response_settings(release, multinomial) | _noise_settings(measures),
                rsquared=None if measures is None else measures.rsquared,
                scale=None if measures is None else measures.scale,
                notes=notes,
            ),
        )


def _response_settings(release: Release, multinomial: bool) -> dict[str, Any]:
    """Return which level of a label with two levels counts as 1, and for several levels its name."""
    if multinomial:
        return {"response": release.design.response}
    levels = list(examples_noise_model(release)["label"].get("levels", ()))
    is_coded = len(levels) == 2 and (levels[1] is True or levels[1] != 1)
    return {"level": levels[1]} if is_coded else {}


def _noise_settings(measures: MeasuresOfFit | None) -> dict[str, Any]:
    """Return the noise of R-squared and of the residual variance, where the fit has them."""
    return {} if measures is None else {"measure_noise": dict(measures.noise)}


def _described(settings: ExampleSettings) -> str:
    if settings["correction"] == "series":
        return f"series, K = {settings['truncation']}"
    return str(settings["correction"])


def _biased(system: ExampleScores) -> bool:
    """Whether the scores have no mean of zero at the truth: intervals and tests would mislead."""
    if system.correction == "none":
        return not (system.data.noise_free.all() and system.data.unprotected_label)
    exact = system.loss == "quadratic" and system.truncation != 0
    return system.correction == "series" and bool(system.noise.any()) and not exact


def _inflation(system: ExampleScores, estimate: Estimate, strength: Identification | None) -> tuple[str, str]:
    """Return the noise inflation of a fit as its summary prints it, and the note on it.

    It is an exponential of the squared coefficients. In weak fits, whose coefficients have no standard
    errors, it would be 0 or larger than 1e100 by chance, so it is not available there.
    """
    if estimate.cov is None or (strength is not None and strength.weak):
        return "not available", NO_INFLATION
    low, high = noise_inflation_interval(system, estimate.params, estimate.cov)
    value = noise_inflation(system, estimate.params)
    return f"{value:.3g}", INFLATION.format(value, low, high)


def _notes(release: Release, system: ExampleScores, params: Floats) -> tuple[str | Note, ...]:
    notes: list[str | Note] = [] if release.noise_model["noise_free"] else [Note(CLIPPED, "header")]
    if system.correction == "conditional" and system.noise.any():
        notes.append(Note(TARGETS[system.loss], "table"))
    if _biased(system):
        notes += must_read(
            NAIVE if system.correction == "none" else SERIES.format(series_bias(system, params))
        )
    if system.ridge > 0.0:
        notes += must_read(PENALIZED.format(system.ridge))
    if system.loss == "poisson" and system.correction == "exact":
        ratio, se = count_dispersion(system.data, params)
        if not math.isfinite(se):
            notes.append(SCATTER_HIDDEN)
        elif is_hidden(ratio, se):
            notes.append(SCATTER_LIMIT.format(largest_dispersion(ratio, se)))
        else:
            notes.append(SCATTER.format(ratio, se))
    return tuple(notes)


def _label_mode(formula: str, schema: Schema, options: ExampleModelOptions) -> LabelChoice:
    """Return the default release of a label."""
    name = formula.partition("~")[0].strip() if isinstance(formula, str) else ""
    bare = name[2:-1].strip() if name.startswith("C(") and name.endswith(")") else name
    if bare in schema and schema[bare].public:
        return "clear"
    return options.noise if options.loss in NUMERIC else "response"
