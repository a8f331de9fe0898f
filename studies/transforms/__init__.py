"""Transforms of any function: closed forms, derivatives of any order, and the inverses made of them."""

from studies.transforms.closed_forms import (
    ClosedForm,
    cosine,
    exponential,
    inverse_linear_product,
    polynomial,
    sine,
)
from studies.transforms.inverses import inverse_bernoulli, inverse_series
from studies.transforms.jets import derivatives
from studies.transforms.variances import (
    bernoulli,
    bernoulli_variance,
    exponential_variance,
    quadratic_variance,
    response_variances,
)

__all__ = [
    "ClosedForm",
    "bernoulli",
    "bernoulli_variance",
    "cosine",
    "derivatives",
    "exponential",
    "exponential_variance",
    "inverse_bernoulli",
    "inverse_linear_product",
    "inverse_series",
    "polynomial",
    "quadratic_variance",
    "response_variances",
    "sine",
]
