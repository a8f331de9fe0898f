"""From released examples to the estimating function of a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from privinf.iwp.equation import Correction, ExampleScores
from privinf.iwp.noise import LabelNoise, ResponseColumns
from privinf.releases import Release
from privinf.typing import Floats, Loss

DEFAULT_CORRECTION: dict[str, Correction] = {
    "squared": "exact", "quadratic": "exact", "exponential": "exact", "poisson": "exact",
    "logistic": "conditional", "multinomial": "conditional",
}  # fmt: skip
NUMERIC: tuple[Loss, ...] = ("squared", "poisson")


def example_system(release: Release, settings: Mapping[str, Any], *, centred: bool = True) -> ExampleScores:
    """Return the estimating function of `release` for a loss, scaled units, in the design's column order.

    Parameters
    ----------
    release : Release
        Of kind "local-examples".
    settings : mapping
        loss, correction, truncation and ridge.
    centred : bool
        False: columns only divided by their scale, so that the constant is a multiple of the user's.

    Raises
    ------
    NotAvailableError
        The loss does not fit the released label.
    """
    design, law = release.design, release.law
    private = np.flatnonzero(design.private)
    X = np.empty((release.nobs, len(design.names)))
    X[:, private] = release.arrays["features"]
    X[:, ~design.private] = release.arrays["public"]
    if not centred:
        center, scale = sent_units(release)
        X += center / scale
    noise = np.zeros(len(design.names))
    noise[private[law["gaussian"]]] = law["scale"] ** 2
    responses = tuple(
        ResponseColumns(tuple(int(private[c]) for c in item["columns"]), item["keep"], item["other"])
        for item in law["responses"]
    )
    labels, label = _labels(release, settings["loss"])
    penalized = np.ones(len(design.names), dtype=bool)
    if design.constant is not None:
        penalized[design.constant] = False
    return ExampleScores(
        X, labels, noise, loss=settings["loss"], correction=settings["correction"], label=label,
        responses=responses, truncation=settings["truncation"], ridge=settings["ridge"], penalized=penalized,
    )  # fmt: skip


def _labels(release: Release, loss: Loss) -> tuple[Any, LabelNoise | float]:
    """Return the labels as the loss takes them, and their noise."""
    design, label = release.design, release.law["label"]
    sent = release.arrays["labels"]
    if "levels" in label:
        return sent, LabelNoise(len(label["levels"]), label.get("keep", 1.0), label.get("other", 0.0))
    scale = float(label.get("scale", 0.0))
    if loss == "squared":
        return sent, scale**2
    return sent * design.y_scale + design.y_center, (scale * design.y_scale) ** 2


def sent_units(release: Release) -> tuple[Floats, Floats]:
    """Return centre and scale of the design columns as they were sent."""
    units = release.law["units"]
    return np.asarray(units["center"], dtype=np.float64), np.asarray(units["scale"], dtype=np.float64)


def user_map(release: Release, loss: Loss) -> tuple[Floats, Floats]:
    """Return T and shift of one set of coefficients: ``params_user = T params_scaled + shift``.

    The response has units for the squared loss only; other losses have a linear predictor.
    """
    design = release.design
    center, scale = sent_units(release)
    y_scale, y_center = (design.y_scale, design.y_center) if loss == "squared" else (1.0, 0.0)
    transform, shift = np.diag(y_scale / scale), np.zeros(len(design.names))
    if design.constant is not None:
        transform[design.constant] -= y_scale * center / scale
        shift[design.constant] = y_center
    return transform, shift


def parameter_names(release: Release, loss: Loss) -> tuple[str, ...]:
    """Return the names of all coefficients: columns, or one set for each level but the first."""
    names = release.design.names
    if loss != "multinomial":
        return names
    levels = release.law["label"]["levels"][1:]
    return tuple(f"{name}[{level}]" for level in levels for name in names)
