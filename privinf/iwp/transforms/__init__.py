"""Weierstrass and Bernoulli transforms (what noise does to a function) and their inverses."""

from privinf.iwp.transforms.bernoulli import (
    bernoulli,
    bernoulli_variance,
    exponential_variance,
    inverse_bernoulli,
    inverse_weights,
    quadratic_variance,
    response_variances,
)
from privinf.iwp.transforms.closed_forms import (
    ClosedForm,
    cosine,
    exponential,
    inverse_linear_product,
    polynomial,
    sine,
)
from privinf.iwp.transforms.jets import derivatives
from privinf.iwp.transforms.series import (
    choose_truncation,
    inverse_series,
    logistic_derivatives,
    truncation_bias,
)

__all__ = [
    "ClosedForm",
    "bernoulli",
    "bernoulli_variance",
    "choose_truncation",
    "cosine",
    "derivatives",
    "exponential",
    "exponential_variance",
    "inverse_bernoulli",
    "inverse_linear_product",
    "inverse_series",
    "inverse_weights",
    "logistic_derivatives",
    "polynomial",
    "quadratic_variance",
    "response_variances",
    "sine",
    "truncation_bias",
]
