r"""How the budget of released examples is split over noisy columns, responded features and the label.

Randomized responses and Laplace noise cost pure epsilons :math:`e_j`, which add up. What is left of
(epsilon, delta) goes to the Gaussian columns. Left is meant exactly: the largest mu with

.. math:: \sum_l p_l \, \delta_{\mu}(\epsilon - l) \le \delta,

where the sum is over the joint loss of the pure parts (each :math:`\pm e_j`), not the mu of
:math:`(\epsilon - \sum e_j, \delta)`, which would throw a part of the budget away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from privinf.accounting import (
    GaussianLoss,
    LedgerEntry,
    PureLoss,
    calibrate_mu,
    classic_mu,
    compose,
    gaussian_mu,
    split_mu,
)
from privinf.accounting.calibration import exact, float_down
from privinf.errors import ArgumentError
from privinf.mechanisms.local.channels import FeaturePlan, Label
from privinf.mechanisms.local.responses import RandomizedResponse
from privinf.release_kinds import AnswerNoiseModel, ExamplesNoiseModel, LabelNoiseModel
from privinf.typing import Calibration, ExampleNoise, LabelKind
from privinf.validation import check_choice, check_delta, check_fraction, check_positive, is_zero

# Of an epsilon named as a whole, the features get two parts and the label one.
DEFAULT_SHARES = (2.0, 1.0)


@dataclass(frozen=True, slots=True)
class Parts:
    """Protected parts of one release of examples.

    Attributes
    ----------
    gaussian : int
        Number of private columns with added noise.
    responded : tuple of float
        Relative share of each feature under randomized response, where a column with added noise has share
        1; the dummies of a factor are one feature.
    label : {"response", "gaussian", "laplace", "clear"}
    noise : {"gaussian", "laplace"}
        Distribution of the added noise.
    """

    gaussian: int
    responded: tuple[float, ...]
    label: LabelKind
    noise: ExampleNoise = "gaussian"

    @property
    def features(self) -> bool:
        """Whether any feature is protected."""
        return self.gaussian > 0 or len(self.responded) > 0

    @property
    def gaussian_noise(self) -> bool:
        """Whether any column of the features has Gaussian noise."""
        return self.gaussian > 0 and self.noise == "gaussian"

    @property
    def pure_label(self) -> bool:
        """Whether the label costs a pure epsilon."""
        return self.label in {"response", "laplace"}

    def laplace(self, level: float, share: Fraction) -> float | None:
        """Return the epsilon of all Laplace columns together out of `share` of `level`; None without any."""
        if self.gaussian == 0 or self.noise == "gaussian":
            return None
        total = self.gaussian + sum(map(exact, self.responded))
        return float_down(exact(level) * share * self.gaussian / total)

    def answers(self, level: float, share: Fraction) -> list[float]:
        """Return the epsilon of each responded feature out of `share` of `level`, rounded down."""
        total = self.gaussian + sum(map(exact, self.responded))
        return [float_down(exact(level) * share * exact(weight) / total) for weight in self.responded]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleBudget:
    """Budget of each part of a release on one unit.

    Attributes
    ----------
    features_mu, features_epsilon : float or None
        All columns with added noise together: mu of Gaussian noise, pure epsilon of Laplace noise.
    responses : tuple of float
        Epsilon of each responded feature, pure.
    label_epsilon, label_mu : float or None
        The label: pure under randomized response and Laplace noise, mu under Gaussian noise, neither in
        clear.
    """

    features_mu: float | None
    responses: tuple[float, ...]
    label_epsilon: float | None
    label_mu: float | None
    features_epsilon: float | None = None

    @property
    def noise_free(self) -> bool:
        """Whether there is no noise at all (epsilon = inf)."""
        spent = (
            self.features_mu,
            self.features_epsilon,
            *self.responses,
            self.label_epsilon,
            self.label_mu,
        )
        return any(part is not None and math.isinf(part) for part in spent)


def plan_budget(
    parts: Parts,
    *,
    epsilon_x: float | None = None,
    epsilon_y: float | None = None,
    epsilon: float | None = None,
    shares: Sequence[float] | None = None,
    delta: float | None = None,
    calibration: Calibration = "exact",
) -> ExampleBudget:
    """Return the budget of each part; see `LocalExamples.release`.

    Raises
    ------
    ArgumentError
        The named levels do not fit the protected parts, only one side is infinite, or delta is missing.
    """
    check_choice(calibration, Calibration, "calibration")
    if calibration == "classic" and not parts.gaussian_noise and parts.label != "gaussian":
        raise ArgumentError(
            "calibration='classic' applies only to Gaussian noise, but this release adds no "
            "Gaussian noise: leave calibration= out"
        )
    if delta is not None and not is_zero(delta):
        check_fraction(delta, "delta")
    if epsilon is not None:
        if epsilon_x is not None or epsilon_y is not None:
            raise ArgumentError(
                "epsilon= is the total budget: pass either epsilon=, or epsilon_x= and epsilon_y=, not both"
            )
        total = check_positive(epsilon, "epsilon", infinite=True)
        weights = _checked_shares(parts, shares)
        return _unlimited(parts) if math.isinf(total) else _joint(parts, total, weights, delta, calibration)
    if shares is not None:
        raise ArgumentError(
            "shares= divides epsilon= between features and label: leave it out when epsilon_x= and "
            "epsilon_y= are passed"
        )
    levels = _checked_levels(parts, epsilon_x, epsilon_y)
    if any(math.isinf(level) for level in levels.values()):
        return _unlimited(parts)
    return _separate(parts, levels, delta, calibration)


def remaining_mu(
    epsilon: float, delta: float | None, pure: Sequence[float], calibration: Calibration = "exact"
) -> float:
    """Return the largest mu that, together with responses of the `pure` epsilons, is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        Finite, above the sum of `pure`.
    pure : sequence of float
    calibration : {"exact", "classic"}
        "classic": the textbook formula at ``epsilon - sum(pure)``, for reproduction only.

    Returns
    -------
    float
        Rounded down: the exact total at `epsilon` does not exceed `delta`.

    Raises
    ------
    ArgumentError
        `delta` is missing or outside (0, 1).

    Examples
    --------
    >>> round(remaining_mu(4.0, 1e-5, []), 4), round(remaining_mu(4.0, 1e-5, [1.0]), 4)
    (0.9249, 0.7306)
    """
    delta = check_delta(delta)
    if calibration == "classic":
        return classic_mu(epsilon - math.fsum(pure), delta)
    high = gaussian_mu(epsilon, delta)
    if not pure:
        return high

    def spent(mu: float) -> float:
        return compose([GaussianLoss(mu), *map(PureLoss, pure)]).delta(epsilon)

    def excess(mu: float) -> float:
        return math.log(max(spent(mu), 5e-324)) - math.log(delta)

    low = gaussian_mu(epsilon - math.fsum(pure), delta) * (1.0 - 1e-9)
    from scipy.optimize import brentq  # a third of the import time of the package

    root = high if excess(high) <= 0.0 else float(brentq(excess, low, high, xtol=1e-300, rtol=1e-14))
    step = math.ulp(root)
    while spent(root) > delta:
        root = root - step
        step = 2.0 * step
    return root


def _checked_shares(parts: Parts, shares: Sequence[float] | None) -> tuple[Fraction, Fraction]:
    """Return the shares of the features and of the label, adding up to one."""
    if shares is None:
        pair = DEFAULT_SHARES
    else:
        if isinstance(shares, str) or len(shares) != 2:
            raise ArgumentError(
                "shares= must hold two positive numbers, the share of the features and the share of the label"
            )
        if not parts.features or parts.label == "clear":
            raise ArgumentError(
                "shares= divides the budget between protected features and a protected label, but one "
                "of the two is sent without noise here: leave shares= out"
            )
        pair = (check_positive(shares[0], "shares[0]"), check_positive(shares[1], "shares[1]"))
    x = exact(pair[0]) if parts.features else Fraction(0)
    y = Fraction(0) if parts.label == "clear" else exact(pair[1])
    return x / (x + y), y / (x + y)


def _checked_levels(parts: Parts, epsilon_x: Any, epsilon_y: Any) -> dict[str, float]:
    """Return the requested levels by side: every protected side needs one, and no other side may have one."""
    levels = {}
    for side, epsilon, subject, protected in (
        ("x", epsilon_x, "the features", parts.features),
        ("y", epsilon_y, "the label", parts.label != "clear"),
    ):
        if protected and epsilon is None:
            raise ArgumentError(
                f"epsilon_{side}= is missing: pass the budget for {subject}, or pass only epsilon="
            )
        if not protected and epsilon is not None:
            raise ArgumentError(
                f"epsilon_{side}= is not needed, because {subject} will be sent without noise: leave it out"
            )
        if protected:
            levels[side] = check_positive(epsilon, f"epsilon_{side}", infinite=True)
    if len({math.isinf(level) for level in levels.values()}) > 1:
        raise ArgumentError(
            "epsilon_x= and epsilon_y= must both be finite or both infinite. To send one part "
            "without noise, declare its columns public, or pass label='clear'"
        )
    return levels


def _unlimited(parts: Parts) -> ExampleBudget:
    return ExampleBudget(
        features_mu=math.inf if parts.gaussian_noise else None,
        responses=(math.inf,) * len(parts.responded),
        label_epsilon=math.inf if parts.pure_label else None,
        label_mu=math.inf if parts.label == "gaussian" else None,
        features_epsilon=math.inf if parts.gaussian and parts.noise == "laplace" else None,
    )


def _separate(
    parts: Parts, levels: dict[str, float], delta: float | None, calibration: Calibration
) -> ExampleBudget:
    pure = parts.answers(levels["x"], Fraction(1)) if parts.responded else []
    features_mu = remaining_mu(levels["x"], delta, pure, calibration) if parts.gaussian_noise else None
    features_epsilon = parts.laplace(levels["x"], Fraction(1)) if parts.features else None
    label_mu = None
    if parts.label == "gaussian":
        label_mu = calibrate_mu(epsilon=levels["y"], delta=delta, calibration=calibration)
    label_epsilon = levels["y"] if parts.pure_label else None
    return ExampleBudget(
        features_mu=features_mu,
        responses=tuple(pure),
        label_epsilon=label_epsilon,
        label_mu=label_mu,
        features_epsilon=features_epsilon,
    )


def _joint(
    parts: Parts,
    epsilon: float,
    weights: tuple[Fraction, Fraction],
    delta: float | None,
    calibration: Calibration,
) -> ExampleBudget:
    x, y = weights
    answers = parts.answers(epsilon, x)
    features_epsilon = parts.laplace(epsilon, x)
    label_epsilon = float_down(exact(epsilon) * y) if parts.pure_label else None
    pure = [*answers, *(part for part in (features_epsilon, label_epsilon) if part is not None)]
    # At equal shares of epsilon a mu is nearly proportional to its share, so mu^2 goes by their squares.
    squares = {"features": float(x) ** 2 if parts.gaussian_noise else 0.0}
    squares["label"] = float(y) ** 2 if parts.label == "gaussian" else 0.0
    protected = {name: weight for name, weight in squares.items() if weight > 0.0}
    mus: dict[str, float] = {}
    if protected:
        mu = remaining_mu(epsilon, delta, pure, calibration)
        mus = dict(zip(protected, split_mu(mu, list(protected.values())), strict=True))
    return ExampleBudget(
        features_mu=mus.get("features"),
        responses=tuple(answers),
        label_epsilon=label_epsilon,
        label_mu=mus.get("label"),
        features_epsilon=features_epsilon,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesPlan:
    """Lines of one release, calibrated: nothing of it depends on rows."""

    scale: float
    label_scale: float
    responses: tuple[RandomizedResponse, ...]
    label_response: RandomizedResponse | None
    entries: tuple[LedgerEntry, ...]
    noise_free: bool
    variance: float | None = None  # of Laplace noise on the features, as drawn
    label_variance: float | None = None  # of Laplace noise on the label

    def noise_model(self, features: FeaturePlan, response: Label, delta: float | None) -> ExamplesNoiseModel:
        """Return the noise model of the release."""
        responses: list[AnswerNoiseModel] = [
            {
                "name": feature.name,
                "columns": features.private_positions(feature.columns),
                "levels": noise_model.levels,
                "keep": noise_model.keep,
                "other": noise_model.other,
                "epsilon": noise_model.epsilon,
            }
            for feature, noise_model in zip(features.responded, self.responses, strict=True)
        ]
        label: LabelNoiseModel = {"kind": response.kind}
        if response.levels is not None:
            label["levels"] = list(response.levels)
        if (answer := self.label_response) is not None:
            label |= {"keep": answer.keep, "other": answer.other, "epsilon": answer.epsilon}
        if response.kind in {"gaussian", "laplace"}:
            label["scale"] = self.label_scale
        if self.label_variance is not None:
            label["variance"] = self.label_variance
        model: ExamplesNoiseModel = {
            "scale": self.scale,
            "gaussian": features.private_positions(np.flatnonzero(features.gaussian)),
            "responses": responses,
            "label": label,
            "units": features.units(),
            "delta": delta,
            "noise_free": self.noise_free,
        }
        if self.variance is not None:
            model |= {"distribution": "laplace", "variance": self.variance}
        return model
