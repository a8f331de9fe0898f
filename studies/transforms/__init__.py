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

__all__ = [
    "ClosedForm",
    "cosine",
    "derivatives",
    "exponential",
    "inverse_bernoulli",
    "inverse_linear_product",
    "inverse_series",
    "polynomial",
    "sine",
]
