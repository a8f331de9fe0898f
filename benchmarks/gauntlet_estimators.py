"""What runs the gauntlet: every estimator and covariance of the package that claims an interval."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from gauntlet_cells import DELTA, Cell, Family
from gauntlet_truth import Reference

import privinf as pi
from privinf.errors import NotAvailableError, PrivinfError, PrivinfWarning, WeakIdentificationWarning

Fitted = Callable[[Cell, pd.DataFrame, np.random.Generator], Any]
LASSO_TARGETS = (0, 4, 7, 50)
PARTIES = {"a": ["x1"], "b": ["x2"], "c": ["x3", "y"]}


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator of the table.

    Attributes
    ----------
    entry point : str
        Its class in `privinf`; an estimator whose class is not there yet is passed over.
    families : tuple of str
        Of cells without estimators of their own; none where it runs in such cells alone.
    fit : callable
    equal_variance : bool
        Whether it assumes equal error variance, and so runs where that holds alone.
    few : bool
        Whether it is another name for what runs everywhere, and so runs in the reduced cells alone.
    """

    entry_point: str
    families: tuple[Family, ...]
    fit: Fitted
    equal_variance: bool = False
    few: bool = False


def rows_model(entry_point: str, model: dict[str, Any], more: dict[str, Any]) -> Fitted:
    """Return the fit of a formula on a frame, by options of the model and of its ``fit``."""

    def fit(cell: Cell, frame: pd.DataFrame, rng: np.random.Generator) -> Any:
        made = getattr(pi, entry_point).from_formula(
            cell.population.formula, frame, schema=pi.Schema(cell.declared()), **model
        )
        return made.fit(epsilon=cell.epsilon, delta=DELTA, rng=rng, **more)

    return fit


def split(cell: Cell, frame: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame, list[tuple[float, float]]]:
    """Return the response, the columns, and the columns' bounds."""
    X = frame.drop(columns=cell.response)
    declared = cell.declared()
    return frame[cell.response].to_numpy(), X, [declared[name] for name in X]


def modulated(cell: Cell, frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    y, X, bounds = split(cell, frame)
    model = pi.ModulatedOLS(y, pi.add_constant(X), bounds=bounds, y_bounds=cell.declared()[cell.response])
    return model.fit(epsilon=cell.epsilon, delta=DELTA, rng=rng)


def examples(cell: Cell, frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    y, X, bounds = split(cell, frame)
    model = pi.IWPGLM(y, pi.add_constant(X), loss="logistic", bounds=bounds)
    return model.fit(epsilon_x=0.8 * cell.epsilon, epsilon_y=0.2 * cell.epsilon, delta=DELTA, rng=rng)


def lasso(cell: Cell, frame: pd.DataFrame, rng: np.random.Generator) -> Any:
    y, X, bounds = split(cell, frame)
    model = pi.DebiasedLasso(y, X, x_bound=bounds[0][1], y_bounds=cell.declared()[cell.response])
    return model.fit(epsilon=cell.epsilon, delta=DELTA, sparsity=5, targets=list(LASSO_TARGETS), rng=rng)


def mixed(entry_point: str) -> Fitted:
    """Return the fit of a table that three parties hold."""

    def fit(cell: Cell, frame: pd.DataFrame, rng: np.random.Generator) -> Any:
        _, X, bounds = split(cell, frame)
        model = getattr(pi, entry_point)(
            frame[cell.response],
            X,
            parties=PARTIES,
            bounds=bounds,
            intercept=True,
            y_bounds=cell.declared()[cell.response],
        )
        return model.fit(epsilon=cell.epsilon, delta=DELTA, rng=rng)

    return fit


def glm(entry_point: str, family: Family) -> Estimator:
    return Estimator(
        entry_point, (family,), rows_model(entry_point, {"family": family}, {}), few="GLM" in pi.__all__
    )


ESTIMATORS: dict[str, Estimator] = {
    "OLS": Estimator("OLS", ("gaussian",), rows_model("OLS", {}, {})),
    "OLS nonrobust": Estimator(
        "OLS", ("gaussian",), rows_model("OLS", {}, {"cov_type": "nonrobust"}), equal_variance=True
    ),
    "MomentOLS HC0": Estimator("MomentOLS", ("gaussian",), rows_model("MomentOLS", {}, {"cov_type": "HC0"})),
    "MomentOLS": Estimator(
        "MomentOLS",
        ("gaussian",),
        rows_model("MomentOLS", {}, {"cov_type": "nonrobust"}),
        equal_variance=True,
    ),
    "Logit": Estimator("Logit", ("binomial",), rows_model("Logit", {}, {})),
    "Logit nonrobust": Estimator("Logit", ("binomial",), rows_model("Logit", {}, {"cov_type": "nonrobust"})),
    "Poisson": Estimator("Poisson", ("poisson",), rows_model("Poisson", {}, {})),
    **{
        f"{entry_point} {family}": glm(entry_point, family)
        for entry_point in ("GLM", "FederatedGLM")
        for family in ("gaussian", "binomial", "poisson")
    },
    "MomentOLS local": Estimator("MomentOLS", (), rows_model("MomentOLS", {"trust": "local"}, {})),
    "ModulatedOLS": Estimator("ModulatedOLS", (), modulated),
    "IWPGLM": Estimator("IWPGLM", (), examples),
    "DebiasedLasso": Estimator("DebiasedLasso", (), lasso),
    "RMGMOLS": Estimator("RMGMOLS", (), mixed("RMGMOLS")),
    "DGMOLS": Estimator("DGMOLS", (), mixed("DGMOLS")),
}


def estimators_of(cell: Cell, wanted: list[str] | None = None) -> list[str]:
    """Return the names of the estimators that run a cell, of those that are wanted and exist."""
    found = cell.alone or [
        name
        for name, each in ESTIMATORS.items()
        if cell.family in each.families
        and (cell.population.equal_variance or not each.equal_variance)
        and (cell.reduced or not each.few)
    ]
    return [
        name
        for name in found
        if (wanted is None or name in wanted) and ESTIMATORS[name].entry_point in pi.__all__
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one fit said, coefficient by coefficient in the order of the reference.

    Attributes
    ----------
    covered, width : list
        Whether the interval holds the target, and its length over the non-private one; None where the fit
        has no interval for the coefficient.
    flagged, warned : str
        The flag that the interval should not be trusted; names of other warnings. Empty without.
    refused : str
        Why there is no interval at all.
    posterior : int
        Whether the interval is of a posterior, as that of a logistic fit is where it is weak.
    rejected : int, optional
        Whether the score test rejects the true slopes at 5%, where the cell counts that and the fit has one.
    """

    covered: list[int | None]
    width: list[float | None]
    flagged: str = ""
    warned: str = ""
    refused: str = ""
    posterior: int = 0
    rejected: int | None = None


def outcome(
    cell: Cell, name: str, frame: pd.DataFrame, rng: np.random.Generator, reference: Reference
) -> Outcome:
    """Fit, ask for the interval, and compare it with the truth."""
    return outcome_and_result(cell, name, frame, rng, reference)[0]


def outcome_and_result(
    cell: Cell, name: str, frame: pd.DataFrame, rng: np.random.Generator, reference: Reference
) -> tuple[Outcome, Any]:
    """Return the outcome of a fit, and its result; None where there is no interval."""
    nothing: list[Any] = [None] * len(reference.names)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = ESTIMATORS[name].fit(cell, frame, rng)
            interval = result.conf_int()
        except NotAvailableError as error:
            return Outcome(nothing, nothing, refused=str(error)[:160] or "no reason"), None
        except PrivinfError as error:
            return Outcome(nothing, nothing, refused=f"{type(error).__name__}: {error}"[:160]), None
    kinds = [each.category for each in said]
    weak = any(issubclass(kind, WeakIdentificationWarning) for kind in kinds) or flags_of(result)
    others = {kind.__name__ for kind in kinds if issubclass(kind, PrivinfWarning)}
    others -= {WeakIdentificationWarning.__name__}
    interval.index = ["Intercept" if label == "const" else label for label in interval.index]
    limits = interval.reindex(reference.names).to_numpy(dtype=float)
    if not np.isfinite(limits).all(axis=1).any():
        return Outcome(nothing, nothing, refused="no finite interval"), None
    covered, width = judged(limits, reference, cell.n)
    rejected = rejects(result, reference) if cell.scored else None
    seen = Outcome(
        covered,
        width,
        flagged="weak" if weak else "",
        warned=",".join(sorted(others)),
        posterior=int(getattr(result, "cov_type", "") == "posterior"),
        rejected=rejected,
    )
    return seen, result


def rejects(result: Any, reference: Reference) -> int | None:
    """Return whether the score test rejects the truth, or None where there is no such test."""
    try:
        return int(result.score_test(reference.target[1:]).pvalue < 0.05)
    except PrivinfError:
        return None


def flags_of(result: Any) -> bool:
    """Whether the result itself says that its interval should not be trusted."""
    strength = getattr(result, "identification", None)
    return bool(getattr(strength, "weak", False))


def judged(limits: np.ndarray, reference: Reference, n: int) -> tuple[list[int | None], list[float | None]]:
    """Return coverage and relative width of each interval."""
    covered: list[int | None] = []
    width: list[float | None] = []
    for (low, high), target, sd in zip(limits, reference.target, reference.sd, strict=True):
        known = np.isfinite(high - low)
        covered.append(int(low <= target <= high) if known else None)
        width.append(round(float((high - low) / reference.length(sd, n)), 4) if known else None)
    return covered, width
