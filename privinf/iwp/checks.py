"""What IWPGLM refuses before anything is spent: labels, options and starts that do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError
from privinf.iwp.noise import MOST_COMBINATIONS
from privinf.iwp.sgd import Schedule, checked_radius
from privinf.iwp.solving import NUMERIC
from privinf.releases import Release
from privinf.typing import ArrayLike, Floats, Loss
from privinf.validation import as_generator, check_array, check_choice, shown

SolvingMethod = Literal["newton", "sgd"]

WEIGHTS = "IWPGLM takes no observation weights: they would multiply a record's influence on the fit"


def check_label(loss: Loss, levels: Sequence[Any] | None) -> None:
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
                f"loss={loss!r} needs a numeric label, and this one has {len(levels)} declared levels: use "
                f"loss={'logistic' if len(levels) == 2 else 'multinomial'!r}"
            )
    elif levels is None:
        raise NotAvailableError(
            f"loss={loss!r} needs a label of declared levels, and this is a numeric label: declare it as a "
            "factor of the schema, or use loss='squared' or 'poisson'"
        )
    elif loss != "multinomial" and len(levels) != 2:
        raise NotAvailableError(
            f"loss={loss!r} needs a label of two levels, and this one has {len(levels)}: use "
            "loss='multinomial'"
        )


def check_numeric(loss: Loss, y_bounds: Any) -> None:
    """Refuse arrays whose label the loss does not take."""
    if loss in NUMERIC and y_bounds is None:
        raise ArgumentError(
            f"loss={loss!r} has a numeric label: pass its public bounds, y_bounds=(low, high)"
        )
    if loss not in NUMERIC and y_bounds is not None:
        raise ArgumentError(f"y_bounds= is for numeric labels; loss={loss!r} takes labels of levels")
    if loss == "multinomial":
        raise ArgumentError("loss='multinomial' needs declared levels: use from_formula with a schema")


def check_combinations(loss: Loss, correction: str, levels: Sequence[int]) -> None:
    """Refuse more level combinations of responded features than a nonlinear loss sums over.

    Raises
    ------
    ArgumentError
    """
    count = math.prod(levels)
    if loss not in {"squared", "quadratic"} and correction != "none" and count > MOST_COMBINATIONS:
        raise ArgumentError(
            f"the features under randomized response have {count} level combinations, more than "
            f"{MOST_COMBINATIONS}: send some of them with Gaussian noise (binary=, binary_mechanism=), merge "
            "levels, or use loss='squared' or 'quadratic'"
        )


def check_release(release: Release) -> None:
    """Refuse a release of several rows a unit, or one that declares noise of scale 0.

    Raises
    ------
    NotAvailableError, ArgumentError
    """
    if "groups" in release.arrays:
        raise NotAvailableError(
            "IWPGLM takes records as independent: several rows a unit (max_rows > 1) are not offered"
        )
    law = release.law
    scales = {"features": law["scale"]} if law["gaussian"] else {}
    if law["label"]["kind"] == "gaussian":
        scales["label"] = law["label"]["scale"]
    for part, scale in scales.items():
        if not law["noise_free"] and not scale > 0.0:
            raise ArgumentError(
                f"the release declares Gaussian noise on its {part}, of scale {scale:g}: the scale must be "
                "positive, or the release be declared noise_free"
            )


def check_method(method: SolvingMethod, passes: Mapping[str, Any]) -> None:
    """Refuse options of the single pass where there is none, and bad ones."""
    if check_choice(method, SolvingMethod, "method") == "newton":
        if passes:
            raise ArgumentError(f"{', '.join(passes)}: only with method='sgd'")
        return
    checked_radius(passes.get("theta_radius"))
    if not isinstance(passes.get("average", False), bool):
        raise ArgumentError("average must be True or False")
    if "public_seed" in passes:
        as_generator(passes["public_seed"], "public_seed")
    scheduled = {name: value for name, value in passes.items() if name not in ("theta_radius", "public_seed")}
    Schedule.checked(**{"step": 1.0} | scheduled)


def checked_start(start: ArrayLike, parameters: int) -> Floats:
    """Return a start as an array of `parameters` finite numbers; ArgumentError for anything else."""
    values = check_array(start, "start", ndim=1)
    if values.shape != (parameters,):
        raise ArgumentError(f"start must have {parameters} values, got {values.size}")
    return values


def binary_names(items: Sequence[str | int], names: Sequence[str]) -> list[str]:
    """Return columns named by name or position as names.

    Raises
    ------
    ArgumentError
        A position that does not exist, or one text instead of a list.
    """
    if isinstance(items, str):
        raise ArgumentError("binary must be a list of column names or positions")
    found = []
    for item in items:
        if isinstance(item, (int, np.integer)):
            if isinstance(item, bool) or not 0 <= item < len(names):
                raise ArgumentError(
                    f"binary: there is no column {shown(item)}; positions are 0..{len(names) - 1}"
                )
            found.append(names[int(item)])
        else:
            found.append(item)
    return found
