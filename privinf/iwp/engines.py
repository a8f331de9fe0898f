"""From a loss and its correction to the engine that sums its scores."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from privinf.iwp.data import Examples
from privinf.iwp.forms import ConditionalForm, ExponentialForm, Form, PoissonForm, SeriesForm
from privinf.iwp.linear import LinearEngine
from privinf.iwp.multinomial import MultinomialEngine
from privinf.iwp.noise import LabelNoise
from privinf.iwp.scalar import ScalarEngine
from privinf.iwp.transforms.series import exponential_derivatives, logistic_derivatives, quadratic_derivatives
from privinf.typing import Floats

DERIVATIVES = {
    "quadratic": quadratic_derivatives,
    "exponential": exponential_derivatives,
    "logistic": logistic_derivatives,
}


class Engine(Protocol):
    """Block sums of one kind of score."""

    @property
    def size(self) -> int:
        """Number of parameters."""
        ...

    @property
    def width(self) -> int:
        """Evaluations each record needs."""
        ...

    def scores(self, theta: Floats, rows: slice) -> Floats:
        """Return the scores of a block."""
        ...

    def totals(self, theta: Floats, rows: slice) -> Floats:
        """Return the sum of a block's scores."""
        ...

    def derivatives(
        self, theta: Floats, rows: slice, multipliers: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the sums of a block's scores and of their derivatives, optionally weighted."""
        ...

    def clean_squares(self, theta: Floats, rows: slice) -> Floats | None:
        """Return the sum of unbiased outer products of the clean scores; None where there is none."""
        ...


def engine_for(data: Examples, loss: str, correction: str, truncation: int | None) -> Engine:
    """Return the engine of a loss under a correction."""
    if loss in {"squared", "quadratic"}:
        # The series of a quadratic is exact from its first term on.
        if correction == "series" and truncation == 0:
            return LinearEngine(_without_gaussian(data), signed=True)
        return LinearEngine(data, signed=loss == "quadratic")
    combinations = data.combinations()
    if loss == "multinomial":
        assert isinstance(data.label, LabelNoise)
        return MultinomialEngine(data, combinations, data.label.levels)
    form = _form(loss, correction, truncation, gaussian=bool(data.noise.any()))
    return ScalarEngine(data, form, combinations)


def _form(loss: str, correction: str, truncation: int | None, *, gaussian: bool) -> Form:
    if correction == "series" and gaussian:
        assert truncation is not None
        return SeriesForm(DERIVATIVES[loss], truncation)
    if loss == "exponential":
        return ExponentialForm()
    return PoissonForm() if loss == "poisson" else ConditionalForm(linear=not gaussian)


def _without_gaussian(data: Examples) -> Examples:
    return Examples(data.X, data.labels, np.zeros_like(data.noise), data.responses, data.label)


def ignoring_noise(data: Examples) -> Examples:
    """Return the same examples as if they had been sent in clear."""
    label = LabelNoise(data.label.levels, 1.0, 0.0) if isinstance(data.label, LabelNoise) else 0.0
    return Examples(data.X, data.labels, np.zeros_like(data.noise), (), label)
