"""Checks of IWPGLM before it solves, its estimating function, and the estimate that its root gives.

Estimates are in scaled units and hold both kinds of error, of sampling and of privacy noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypedDict

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.estimate import Estimate, VarianceTerms, is_positive_definite
from privinf.inference.solution import sandwich, score_meat
from privinf.iwp.equation import Correction, ExampleScores
from privinf.iwp.example_sgd import ExampleSGD
from privinf.iwp.laplace import MOST_COLUMNS
from privinf.iwp.noise import (
    MOST_COMBINATIONS,
    LabelNoise,
    ResponseColumns,
    distribution_of,
    examples_noise_model,
    feature_variance,
    label_variance,
)
from privinf.iwp.root import Root
from privinf.iwp.sgd import Schedule, checked_radius
from privinf.releases import Release
from privinf.schema import Design
from privinf.schema.geometry import SAME_UNIT, to_user
from privinf.typing import ArrayLike, Floats, LossName
from privinf.validation import ReadRows, as_generator, check_array, check_choice, shown

SolvingMethod = Literal["newton", "sgd"]
NUMERIC: tuple[LossName, ...] = ("squared", "poisson")  # losses whose label is a number
SINGULAR = (
    "the covariance of the coefficients is not positive definite. Columns may be constant or collinear, "
    "they may fit the label exactly, or the noise may be too large; use fewer columns or a larger budget"
)
# Why `IWPGLM` has no weights=.
WEIGHTS = "would increase a record's influence on the fit: IWPGLM accepts no observation weights"
EQUATION = """\
cov = J^-1 [ sampling + noise of the examples ] J^-T / n
n: number of records
J: mean derivative of the corrected scores; the bracket is the covariance of these scores
sampling: covariance that the scores would have without noise, estimated from the released scores
noise of the examples: the rest of the covariance, due to the noise in features and labels
sampling and noise: the total, where the two parts cannot be estimated separately"""
# A noise part below this share of the covariance is rounding.
NEGLIGIBLE_NOISE = 1e-9


def check_label(loss: LossName, levels: Sequence[Any] | None) -> None:
    """Refuse a label that the loss does not take: too many levels, or none declared.

    Parameters
    ----------
    loss : str
    levels : sequence, or None for a numeric label

    Raises
    ------
    NotAvailableError
    """
    if loss in NUMERIC:
        if levels is not None:
            raise NotAvailableError(
                f"loss={loss!r} needs a numeric label, and this one has {len(levels)} declared "
                f"levels: use loss={'logistic' if len(levels) == 2 else 'multinomial'!r}"
            )
    elif levels is None:
        raise NotAvailableError(
            f"loss={loss!r} needs a label with declared levels, but this label is numeric: declare "
            "it as a Factor in the schema, or use loss='squared' or 'poisson'"
        )
    elif loss != "multinomial" and len(levels) != 2:
        raise NotAvailableError(
            f"loss={loss!r} needs a label of two levels, and this one has {len(levels)}: use "
            "loss='multinomial'"
        )


def check_numeric(loss: LossName, y_bounds: object) -> None:
    """Refuse arrays whose label the loss does not take."""
    if loss in NUMERIC and y_bounds is None:
        raise ArgumentError(
            f"loss={loss!r} needs a numeric label with public bounds: pass y_bounds=(low, high)"
        )
    if loss not in NUMERIC and y_bounds is not None:
        raise ArgumentError(
            f"y_bounds= is only for numeric labels, but loss={loss!r} needs a label with levels: leave "
            "y_bounds= out"
        )
    if loss == "multinomial":
        raise ArgumentError("loss='multinomial' needs declared levels: use from_formula() with a schema")


def check_combinations(loss: LossName, correction: str, levels: Sequence[int]) -> None:
    """Refuse more level combinations of responded features than a nonlinear loss sums over.

    Raises
    ------
    ArgumentError
    """
    count = math.prod(levels)
    if loss not in {"squared", "quadratic"} and correction != "none" and count > MOST_COMBINATIONS:
        raise ArgumentError(
            f"the features sent by randomized response have {count} combinations of levels, but at most "
            f"{MOST_COMBINATIONS} are possible: send some of these features with Gaussian noise (binary=, "
            "binary_mechanism=), merge levels, or use loss='squared' or 'quadratic'"
        )


def check_laplace_columns(loss: LossName, correction: str, columns: int) -> None:
    """Refuse more columns with Laplace noise than a logistic loss is corrected for.

    Raises
    ------
    ArgumentError
    """
    if loss == "logistic" and correction != "none" and columns > MOST_COLUMNS:
        raise ArgumentError(
            f"loss='logistic' is corrected for Laplace noise on at most {MOST_COLUMNS} columns, and this "
            f"model has {columns}: use noise='gaussian', fewer columns, or loss='quadratic'"
        )


def check_release(release: Release) -> None:
    """Refuse a release of several rows per unit, or one that declares noise of scale 0.

    Raises
    ------
    NotAvailableError, ArgumentError
    """
    if "groups" in release.arrays:
        raise NotAvailableError(
            "IWPGLM needs independent records, so it cannot be fitted with several rows per unit "
            "(max_rows > 1)"
        )
    noise_model = examples_noise_model(release)
    label = noise_model["label"]
    parts: list[tuple[str, str, float, float]] = []
    if noise_model["gaussian"]:
        variance = feature_variance(noise_model)
        parts.append(("features", distribution_of(release), noise_model["scale"], variance))
    if label["kind"] in ("gaussian", "laplace"):
        parts.append(("label", label["kind"], label["scale"], label_variance(label)))
    for part, distribution, scale, variance in parts:
        if not noise_model["noise_free"] and not min(scale, variance) > 0.0:
            raise ArgumentError(
                f"the noise model of the release states {distribution.capitalize()} noise of scale {scale:g} "
                f"for its {part}: the scale must be positive, or the noise model must have noise_free=True"
            )


def check_method(method: SolvingMethod, passes: Mapping[str, Any]) -> None:
    """Refuse options of the single pass where there is none, and bad ones."""
    if check_choice(method, SolvingMethod, "method") == "newton":
        if passes:
            raise ArgumentError(
                f"{', '.join(f'{name}=' for name in passes)} can be used only with method='sgd'"
            )
        return
    checked_radius(passes.get("theta_radius"))
    if not isinstance(passes.get("average", False), bool):
        raise ArgumentError("average= must be True or False")
    if "public_seed" in passes:
        as_generator(passes["public_seed"], "public_seed")
    scheduled = {name: value for name, value in passes.items() if name not in ("theta_radius", "public_seed")}
    Schedule.checked(**{"step": 1.0} | scheduled)


def checked_start(start: ArrayLike, parameters: int) -> Floats:
    """Return a start as an array of `parameters` finite numbers; ArgumentError for anything else."""
    values = check_array(start, "start", ndim=1)
    if values.shape != (parameters,):
        raise ArgumentError(
            f"start= must have {parameters} values, one for each coefficient, got {values.size} values"
        )
    return values


def binary_names(items: Sequence[str | int], names: Sequence[str]) -> list[str]:
    """Return columns named by name or position as names.

    Raises
    ------
    ArgumentError
        A position that does not exist, or one text instead of a list.
    """
    if isinstance(items, str):
        raise ArgumentError("binary= must be a list of column names or column indices")
    columns = []
    for item in items:
        if isinstance(item, (int, np.integer)):
            if isinstance(item, bool) or not 0 <= item < len(names):
                raise ArgumentError(
                    f"binary= names column {shown(item)}, but there is no such column; column indices are "
                    f"0 to {len(names) - 1}"
                )
            columns.append(names[int(item)])
        else:
            columns.append(item)
    return columns


class ExampleSettings(TypedDict):
    """Settings from which results rebuild their estimating function."""

    loss: LossName
    correction: Correction
    truncation: int | None
    ridge: float


def example_system(release: Release, settings: ExampleSettings, *, centered: bool = True) -> ExampleScores:
    """Return the estimating function of `release` for a loss, scaled units, in the design's column order.

    Parameters
    ----------
    release : Release
        Release of kind "local-examples".
    settings : ExampleSettings
        loss, correction, truncation and ridge.
    centered : bool
        False: columns are only divided by their scale, so that the constant is a multiple of the user's.

    Raises
    ------
    NotAvailableError
        The loss does not fit the released label.
    """
    design = release.design
    noise_model = examples_noise_model(release)
    private = np.flatnonzero(design.private)
    shift = 0.0 if centered else np.divide(*sent_units(release))
    X: Any = _shifted_columns(design, shift, release.arrays["features"], release.arrays["public"])
    noise = np.zeros(len(design.names))
    noise[private[noise_model["gaussian"]]] = feature_variance(noise_model)
    responses = tuple(
        ResponseColumns(tuple(int(private[c]) for c in item["columns"]), item["keep"], item["other"])
        for item in noise_model["responses"]
    )
    labels, label = _labels(release, settings["loss"])
    penalized = np.ones(len(design.names), dtype=bool)
    if design.constant is not None:
        penalized[design.constant] = False
    return ExampleScores(
        X,
        labels,
        noise,
        loss=settings["loss"],
        correction=settings["correction"],
        label=label,
        responses=responses,
        truncation=settings["truncation"],
        ridge=settings["ridge"],
        penalized=penalized,
        distribution=distribution_of(release),
    )


def _shifted_columns(design: Design, shift: Floats | float, features: Floats, public: Floats) -> Any:
    """Return all columns of a design, in its order, shifted; rows in a file are read block by block."""
    if isinstance(features, ReadRows):
        return ReadRows.from_function(
            partial(_shifted_columns, design, shift), len(design.names), features, public
        )
    if design.private.all() and not np.any(shift):
        return np.asarray(features, dtype=np.float64)
    X = np.empty((len(features), len(design.names)))
    X[:, design.private] = features
    X[:, ~design.private] = public
    X += shift
    return X


def _labels(release: Release, loss: LossName) -> tuple[Any, LabelNoise | float]:
    """Return the labels as the loss takes them, and their noise."""
    design = release.design
    label = examples_noise_model(release)["label"]
    labels = np.asarray(release.arrays["labels"])
    if "levels" in label:
        return labels, LabelNoise(len(label["levels"]), label.get("keep", 1.0), label.get("other", 0.0))
    variance = label_variance(label)
    if loss == "squared":
        return labels, variance
    return labels * design.y_scale + design.y_center, variance * design.y_scale**2


def sent_units(release: Release) -> tuple[Floats, Floats]:
    """Return center and scale of the design columns as they were sent."""
    units = examples_noise_model(release)["units"]
    return np.asarray(units["center"], dtype=np.float64), np.asarray(units["scale"], dtype=np.float64)


def user_map(release: Release, loss: LossName) -> tuple[Floats, Floats]:
    """Return T and shift of one set of coefficients: ``params_user = T params_scaled + shift``.

    The response has units for the squared loss only; other losses have a linear predictor.
    """
    design = release.design
    y_affine = (design.y_center, design.y_scale) if loss == "squared" else SAME_UNIT
    return to_user(*sent_units(release), y_affine, design.constant)


def parameter_names(release: Release, loss: LossName) -> tuple[str, ...]:
    """Return the names of all coefficients: columns, or one set for each level but the first."""
    names = release.design.names
    if loss != "multinomial":
        return names
    levels = examples_noise_model(release)["label"]["levels"][1:]
    return tuple(f"{name}[{level}]" for level in levels for name in names)


@dataclass(frozen=True, slots=True)
class ExampleFit:
    """An estimate from released examples, scaled units, and how it was computed.

    Attributes
    ----------
    estimate : Estimate
    clean : ndarray, shape (p, p), or None
        Covariance without noise, where it is identified.
    method : str
    options : dict of str
    """

    estimate: Estimate
    clean: Floats | None
    method: str
    options: dict[str, str]


def rooted(system: ExampleScores, root: Root, release: Release, loss: LossName) -> ExampleFit:
    """Return the root of the estimating equation with its sandwich covariance."""
    names = parameter_names(release, loss)
    method = f"Newton, {root.iterations} steps"
    if not root.converged:
        bare = Estimate(params=root.params, cov=None, names=names, nobs=system.n, weak_reason=root.reason)
        return ExampleFit(bare, None, method, {})
    scores = system.scores(root.params)
    meat = system.meat(root.params) if scores is None else score_meat(scores, system.n)
    cov = sandwich(system.jacobian(root.params), meat, system.n)
    if not is_positive_definite(cov):
        return ExampleFit(
            Estimate(params=root.params, cov=None, names=names, nobs=system.n, weak_reason=SINGULAR),
            None,
            method,
            {},
        )
    estimate, clean_cov = _with_cov(system, root.params, cov, names, scores)
    return ExampleFit(estimate, clean_cov, method, {})


def averaged(system: ExampleScores, single: ExampleSGD, release: Release, loss: LossName) -> ExampleFit:
    """Return the result of one pass of stochastic gradient descent."""
    names = parameter_names(release, loss)
    schedule = single.schedule
    method = f"SGD, one pass, batches of {schedule.batch}"
    options = {"Iterate": "average" if schedule.average else "last", "First step": f"{schedule.step:.3g}"}
    if single.cov is None:
        bare = Estimate(params=single.params, cov=None, names=names, nobs=system.n, weak_reason=single.reason)
        return ExampleFit(bare, None, method, options)
    scores = system.scores(single.params)
    estimate, clean_cov = _with_cov(system, single.params, single.cov, names, scores)
    return ExampleFit(estimate, clean_cov, method, options)


def unstarted(
    system: ExampleScores, start: Floats | None, reason: str, release: Release, loss: LossName
) -> ExampleFit:
    """Return the start as all there is, where a pass had nothing to choose its step by."""
    point = np.zeros(system.p) if start is None else start
    names = parameter_names(release, loss)
    return ExampleFit(
        Estimate(params=point, cov=None, names=names, nobs=system.n, weak_reason=reason),
        None,
        "SGD, not started",
        {},
    )


def _with_cov(
    system: ExampleScores, params: Floats, cov: Floats, names: tuple[str, ...], scores: Floats | None
) -> tuple[Estimate, Floats | None]:
    """Return the estimate, and the covariance without noise where it is identified."""
    clean_cov = _clean_cov(system, params)
    noise = None if clean_cov is None else _noise_part(cov, clean_cov)
    bread = system.jacobian(params)
    if noise is None:
        terms = VarianceTerms(EQUATION, {"sampling and noise": cov}, {})
    else:
        terms = VarianceTerms.dividing(cov, EQUATION, {"noise of the examples": noise})
    return Estimate(
        params=params,
        cov=cov,
        names=names,
        nobs=system.n,
        scores=scores,
        bread=bread,
        noise_cov=noise,
        cov_type="HC0",
        terms=terms,
    ), clean_cov


def linear_system(system: ExampleScores) -> CorrectedLeastSquares | None:
    """Return the linear form of a squared loss without features under response; None for other systems."""
    data = system.data
    if system.loss != "squared" or system.correction == "none" or data.responses or system.ridge > 0.0:
        return None
    assert isinstance(data.label, float)
    return CorrectedLeastSquares(data.X, data.labels, np.diag(data.noise), y_noise_var=data.label)


def _clean_cov(system: ExampleScores, params: Floats) -> Floats | None:
    """Return the covariance without noise; the squared loss falls back on equal residual variances."""
    clean = system.clean_cov(params)
    if not isinstance(clean, str):
        return clean
    linear = linear_system(system)
    if linear is None:
        return None
    try:
        meat, _ = linear.clean_meat(params)
    except NotAvailableError:
        return None
    return sandwich(linear.A, meat, linear.n)


def _noise_part(cov: Floats, clean: Floats) -> Floats | None:
    """Return the noise part of a covariance, zero where it is rounding, or None where it is not one."""
    difference = (cov - clean + (cov - clean).T) / 2.0
    errors = np.sqrt(np.diag(cov))
    if (np.abs(difference) <= NEGLIGIBLE_NOISE * np.outer(errors, errors)).all():
        return np.zeros_like(difference)
    scale = np.sqrt(np.abs(np.diag(difference)))
    unit = np.where(scale > 0.0, scale, 1.0)
    smallest = float(np.linalg.eigvalsh(difference / np.outer(unit, unit))[0])
    return difference if smallest > -1e-9 else None
