from .bernoulli import bernoulli as bernoulli
from .bernoulli import bernoulli_variance as bernoulli_variance
from .bernoulli import exponential_variance as exponential_variance
from .bernoulli import inverse_bernoulli as inverse_bernoulli
from .bernoulli import inverse_weights as inverse_weights
from .bernoulli import quadratic_variance as quadratic_variance
from .bernoulli import response_variances as response_variances
from .closed_forms import ClosedForm as ClosedForm
from .closed_forms import cosine as cosine
from .closed_forms import exponential as exponential
from .closed_forms import inverse_linear_product as inverse_linear_product
from .closed_forms import polynomial as polynomial
from .closed_forms import sine as sine
from .jets import derivatives as derivatives
from .series import choose_truncation as choose_truncation
from .series import inverse_series as inverse_series
from .series import logistic_derivatives as logistic_derivatives
from .series import truncation_bias as truncation_bias

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
